"""Five times the sustainable rate, one brand's flood, and clients that hold connections.

`sides.py` has the loads and what is compared, `flood.py` the generator, whose requests leave at
their own time.
"""

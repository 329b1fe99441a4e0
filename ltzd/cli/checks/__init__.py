"""`ltzd check`: everything that `ltzd run` checks before it starts; `ltzd doctor`: also the rest.

Both change nothing. `commands.py` names the options, `views.py` prints the findings.
"""

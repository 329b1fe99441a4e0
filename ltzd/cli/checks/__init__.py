"""`ltzd check`: everything that `ltzd run` checks before it starts; `ltzd doctor`: also the rest.

Both change nothing. `check.py` runs both, `views.py` prints the findings.
"""

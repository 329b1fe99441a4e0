"""Admits requests while the process can serve them in time, and refuses others cheaply.

`gate.py` holds the slots and the queue, `turns.py` orders the queue, `askers.py` says whose request
it is and how urgent, `refusals.py` refuses requests before the application sees them.
"""

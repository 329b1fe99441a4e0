"""Admits requests while the process can serve them in time, and refuses others cheaply.

`gate.py` holds the slots and the line, `turns.py` orders the line, `askers.py` says whose request
it is and how urgent, `refusals.py` answers without an application what will be refused anyway.
"""

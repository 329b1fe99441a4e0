"""Answers of nodes as bytes: how long they may be, and how they become values.

`bounds` has a bound for each call; `decoding` makes values of an answer within its bound.
"""

"""Answers of nodes: how long they may be, and how their bytes become typed values.

`bounds` has a bound for each call; `decoding` makes JSON values of an answer within its bound;
`typed` makes headers, receipts, logs and numbers of these.
"""

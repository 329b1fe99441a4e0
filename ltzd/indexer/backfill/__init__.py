"""Reads settled blocks far from the head: several ranges at once, committed in their order.

`ranges` holds the ranges that are read ahead; `reader` reads one range and makes rows of its logs;
`progress` measures and reports the rate. Begin with `ranges.py`.
"""

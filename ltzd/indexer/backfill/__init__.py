"""Reads settled blocks far from the head: several ranges at once, committed in their order.

`ranges` holds what is read ahead; `reader` reads one range and makes rows of its logs; `progress`
measures the rate and tells of it. Begin with `ranges.py`.
"""

"""A rebuild of the index: fresh tables beside the live ones, and the swap.

`orders` is the state of a rebuild; `fresh_tables` creates, moves and drops tables; `swap` puts the
fresh tables in the place of the live ones; `reconciling` brings rewards and redemptions in line.
"""

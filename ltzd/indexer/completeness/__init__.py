"""Checks that the index is complete: that no log of a settled block is missing, and that the
contracts' own totals agree with the tables.

`doubts` tells which blocks of a range the blooms put in doubt, and `block_logs` reads the logs of
such a block with a proof.
"""

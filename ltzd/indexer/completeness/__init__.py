"""Checks that the index is complete: that no log of a settled block is missing, and that the
contracts' own totals agree with the tables.

`doubts` finds the blocks of a range whose blooms contradict an answer, `block_logs` reads the logs
of such a block with a proof, `open_blocks` lists the blocks that no bloom excludes, and `totals`
compares totals. `indexer/audit.py` does all of it a second time, in the background.
"""

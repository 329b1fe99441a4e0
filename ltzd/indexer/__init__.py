"""Follows one chain into the store and undoes reorgs.

`follower` decides step by step, `next_poll` when the next step is due, and `commits` writes blocks
and moves the cursor. `head_poll` and `reading` fetch heads, blocks and logs from one node, and
`log_checks` checks that no logs are missing; `branches` and `finality` ask the other nodes before
blocks are undone or become final. `contracts` is the registry
of the contracts that are followed. To follow another contract, add a module for it and a line to
the registry. Begin with `follower.py`.
"""

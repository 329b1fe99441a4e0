"""`ltzd index …`: compare the index of the chain with the nodes, and repair it.

`commands` declares the commands; `check` runs `check` and `repair`, `target` finds the database and
the nodes, `progress` tells how far a command is. Begin with `commands.py`.
"""

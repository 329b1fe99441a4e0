"""`ltzd tx …`: shows the operator's transactions; speeds up and cancels them.

Begin with `commands`, which has the names and options. `lookup` finds the transaction that an
argument names, `texts` says in words what it does.
"""

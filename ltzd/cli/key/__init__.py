"""`ltzd key`: makes encrypted keystores for the operator's wallets, and tells their addresses.

Begin with `commands`, which has the names and options. No command prints a key or takes one as an
argument: every user of the machine can read a process's arguments.
"""

"""`ltzd wallets`: lists the custodial wallets and rotates the master key.

Begin with `commands`, which has the names and options.
"""

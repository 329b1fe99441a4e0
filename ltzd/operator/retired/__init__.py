"""Retired and lost wallets: their transactions are watched without the key until they are final.

`lane` serves one such wallet, `work` finds the mints that LTZ will refuse for good, and
`mint_rights` proves this with two nodes and a final block. Begin with `lane`.
"""

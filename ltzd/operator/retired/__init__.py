"""Retired and lost wallets: what they signed is watched without their key until it is final.

`lane` serves one such wallet, `work` tells which of its mints LTZ will refuse for good, and
`mint_rights` proves that with two nodes and a final block. Begin with `lane`.
"""

"""Perk charges, spec 4.2: brands' servers redeem and read the charges of claimed perk tokens.

Begin in `handlers.py`. The relayer hosts these endpoints, so they have its error body and its limit
per client address.
"""

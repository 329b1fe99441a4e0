"""The relayer, spec 4.2: sends a user's calls in transactions that the operator pays for.

Begin in `handlers.py`. `address_limit.py` is the limit per client address, which `/site-links` and
the perk charge endpoints share, as they share the error body of spec 7.2 in `errors.py`.
"""

"""Pregeneration, spec 4.5: wallets of OAuth accounts before their owners log in.

Begin in `handlers.py`. `errors.py` has the error bodies of spec 7.3.
"""

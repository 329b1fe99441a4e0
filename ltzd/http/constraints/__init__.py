"""Cache invalidation of external-API purchase constraints, spec 4.3.

Begin in `handlers.py`. `errors.py` has the error body of spec 7.6.
"""

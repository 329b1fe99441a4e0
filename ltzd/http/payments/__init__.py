"""Checkout sessions and payment mints, spec 4.1, 2.5 and 2.6, and the payment provider's webhook.

Begin in `handlers.py`. Payment mints have an error body of their own, in `errors.py` (spec 7.4);
the other two endpoints use the event handler's.
"""

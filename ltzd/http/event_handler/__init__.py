"""The event handler, spec 4.1: records customer events and mints their rewards.

Begin in `handlers.py`, which has the endpoints in the order of the specification. `bulk_models.py`
has the models of bulk-events, and `domain_verification.py` verify-dns; `errors.py` has the error
body of spec 7.1, and `operations.py` the description for the OpenAPI document.
"""

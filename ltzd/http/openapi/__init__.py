"""The OpenAPI document and its page, made from what the surfaces declare.

Begin in `operations.py`: a handler declares its errors with `raises`, and an `Operation` derives
the error responses. `error_causes.py` has a phrase and an example for each error, `document.py`
writes the document, and `pages.py` serves it.
"""

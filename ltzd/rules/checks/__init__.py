"""The findings of `ltzd run`, `ltzd check` and `ltzd doctor`, and the judgements that need no I/O.

Begin with `findings.py`.
"""

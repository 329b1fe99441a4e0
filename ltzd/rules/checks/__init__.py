"""What `ltzd run`, `ltzd check` and `ltzd doctor` find, and the judgements that need no I/O.

Begin with `findings.py`.
"""

"""Decodes and checks the call of `POST /relay` before it is queued, without I/O.

`calls` is the entry: it decodes the call data (`decoding`), checks the user's signature
(`signatures`) and the EIP-2612 permit (`permits`), and names the contract views that the final
decision needs. The functions that may be relayed are in `ltzd/rules/relayer/allowed_calls.py`.
"""

"""Reads requests: body, fields, headers, and the client's address. Each module is one concern.

Handlers begin with `json_body.read_json` and `json_body.parse_object`; `fields.py` has the types
that the models of all surfaces are made of.
"""

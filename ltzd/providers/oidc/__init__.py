"""Tokens of an OpenID Connect issuer, where the settings name one.

`tokens` checks a token and tells its user; `policy` says whose tokens are accepted and which claims
count; `claims` decides by them, without I/O; `discovery` reads the issuer's published documents.
The keys are those of `ltzd.providers.jwks` in a `ltzd.providers.key_cache`. Begin with `tokens`.
"""

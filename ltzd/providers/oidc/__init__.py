"""Tokens of an OpenID Connect issuer, where the settings name one.

`tokens` checks a token and returns its user; `policy` holds the accepted issuer and audiences and
the names of the claims; `claims` reads a token's claims, without I/O; `discovery` reads the
issuer's published documents. `ltzd.providers.jwks` reads the keys, and
`ltzd.providers.key_cache` keeps them. Begin with `tokens`.
"""

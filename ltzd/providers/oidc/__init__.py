"""Tokens of an OpenID Connect issuer, where the settings name one.

`tokens` checks a token and returns its user; `policy` holds the accepted issuer and audiences and
the names of the claims; `claims` reads a token's claims, without I/O; `discovery` reads the
issuer's published documents. The keys are those of `ltzd.providers.jwks` in a
`ltzd.providers.key_cache`. Begin with `tokens`.
"""

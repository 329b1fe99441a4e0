"""The clients of the outside services, one for each; no other room sends them requests.

`identity/` is the identity vendor, `oidc/` an OpenID Connect issuer instead of it (both check
tokens with `token_checks`, `jwks` and `key_cache`), `oauth/` the providers of users' accounts,
`payments` the payment provider, `host_sites` the sites whose members ltzd serves, `chat` the chat
platform, `external_api` and `brand_webhooks` the URLs of brands, `dns_txt` the domain name system.
`outbound/` has what they send requests with: begin there to add a client.
"""

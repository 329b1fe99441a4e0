"""The client of the identity provider (Privy), which knows users, their wallets and their accounts.

`client` is the whole of it to other rooms; `tokens` checks the provider's tokens and needs no
request for most of them. Below: `users` finds or makes a user, `links` remembers what is linked to
a user, `signing` has the provider sign EIP-712 data (`typed_data`), `keys` keeps the keys that
tokens are signed with. `calls` sends the requests; `answers` and `accounts` read what comes back,
without I/O. Begin with `client`.
"""

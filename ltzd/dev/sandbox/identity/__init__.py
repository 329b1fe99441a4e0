"""The identity provider: users with linked accounts and embedded wallets, tokens, and signing.

`api` speaks the vendor's server API, `wallet_rpc` signs, `tokens` issues tokens, and
`token_control` logs users in for tests. `users` stores the users; `accounts` has the rules of their
linked accounts. `wallet_app` is a page that plays a user's wallet app. Begin with `api`.
"""

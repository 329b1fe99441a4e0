"""Asks OAuth providers whether an account exists, and what it is called there.

`lookups` is the whole of it to other rooms; `policy` holds each provider's credentials and the
limits. Below: `by_id` (Discord, Twitter, GitHub, Telegram, Google), `by_name` (Instagram, TikTok)
and `spotify` each build a provider's request and read its verdict; `client_tokens` gets the tokens
that some need first; `calls` sends the requests; `answers` has what all verdicts share. Begin with
`lookups`.
"""

"""The APIs of eight OAuth providers and of a Discord levelling bot.

`api_by_id`, `api_discord` and `api_clients` speak them, `errors` has their refusals, and
`account_store` keeps the accounts that `control` sets for tests. `app` puts them together; begin
there.
"""

"""Webhooks to brands, and periodic work.

`sender` claims due webhooks and posts them: `rendering` reads their bodies and secrets, `attempts`
makes one HTTP attempt, `endpoints` bounds the concurrency of each brand, `outcomes` writes the
results in groups, and `database_time` tells what is due. `cleanup` deletes expired rows.
`chat_recheck_loop` and `redemption_recheck` repeat checks whose answer may have changed. Begin with
`sender.py`.
"""

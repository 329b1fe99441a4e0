"""PostgreSQL: every statement that reads or writes ltzd's tables.

Functions take the connection, so that the caller decides what commits together. One package a
surface or role (`event_handler`, `relayer`, `site_plugin`, `indexer`, `operator`, `webhooks`), and
`users`, `brands`, `books`, `constraints`, `encryption` and `migrations` for what several of them
share. Begin with `database.py`, then `operator/transactions.py`.
"""

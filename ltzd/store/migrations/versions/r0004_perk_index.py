"""Indexed collections, tokens, items and deals, and the results of purchase constraints."""

from ltzd.store.migrations import plain_sql

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    plain_sql.run("0004_perk_index.sql")

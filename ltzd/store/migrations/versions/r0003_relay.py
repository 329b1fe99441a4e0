"""Relayed calls and their costs."""

from ltzd.store.migrations import plain_sql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    plain_sql.run("0003_relay.sql")

"""Addresses that follow their owners: who has proven them, and the wallets that they left."""

from ltzd.store.migrations import plain_sql

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    plain_sql.run("0009_following.sql")

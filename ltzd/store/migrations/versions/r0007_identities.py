"""Accounts with wallets, and the users of who runs without a vendor."""

from ltzd.store.migrations import plain_sql

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    plain_sql.run("0007_identities.sql")

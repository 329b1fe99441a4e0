"""E-mail addresses that move to the wallets of their proven owners."""

from ltzd.store.migrations import plain_sql

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    plain_sql.run("0009_following.sql")

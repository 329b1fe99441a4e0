"""Wallets of OAuth accounts, and users whose keys ltzd keeps."""

from ltzd.store.migrations import plain_sql

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    plain_sql.run("0007_identities.sql")

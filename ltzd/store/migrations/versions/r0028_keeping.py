"""Erased e-mail addresses: the key of their hashes, the erasures, and the progress of retention."""

from ltzd.store.migrations import plain_sql

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    plain_sql.run("0028_keeping.sql")

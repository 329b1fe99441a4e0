"""Proofs of e-mail addresses that have no user yet."""

from ltzd.store.migrations import plain_sql

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    plain_sql.run("0033_address_proofs.sql")

"""Mints of payments whose rows were lost with a server."""

from ltzd.store.migrations import plain_sql

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    plain_sql.run("0037_unknown_payments.sql")

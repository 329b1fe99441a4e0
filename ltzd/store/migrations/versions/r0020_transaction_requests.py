"""Requests to speed up or to cancel a transaction by hand."""

from ltzd.store.migrations import plain_sql

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    plain_sql.run("0020_transaction_requests.sql")

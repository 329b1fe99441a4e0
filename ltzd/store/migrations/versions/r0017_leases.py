"""Leases: the process that holds a lane, a chain or a periodic job."""

from ltzd.store.migrations import plain_sql

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    plain_sql.run("0017_leases.sql")

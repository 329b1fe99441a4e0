"""Claims of queued work by lanes, and words of references for each mint lane."""

from ltzd.store.migrations import plain_sql

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    plain_sql.run("0019_fleet_work.sql")

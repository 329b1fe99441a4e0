"""Sums of the events that retention has taken away."""

from ltzd.store.migrations import plain_sql

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    plain_sql.run("0030_closed_events.sql")

"""Brands, events, rewards, the mint lane and the indexed LTZ."""

from ltzd.store.migrations import plain_sql

revision = "0001"
down_revision = None


def upgrade() -> None:
    plain_sql.run("0001_first_light.sql")

"""Attempts that every node refuses, and the self-transfers that take their nonces."""

from ltzd.store.migrations import plain_sql

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    plain_sql.run("0010_abandoned_attempts.sql")

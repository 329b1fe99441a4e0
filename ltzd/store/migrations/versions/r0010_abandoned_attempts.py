"""Signed bytes that every node refuses, and the nonce they leave to a self-transfer."""

from ltzd.store.migrations import plain_sql

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    plain_sql.run("0010_abandoned_attempts.sql")

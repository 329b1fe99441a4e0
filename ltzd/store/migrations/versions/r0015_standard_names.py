"""Stored names that match the names in the code."""

from ltzd.store.migrations import plain_sql

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    plain_sql.run("0015_standard_names.sql")

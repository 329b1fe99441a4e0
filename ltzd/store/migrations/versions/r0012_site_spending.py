"""The spending of site sessions: members' earnings, links by code, and split payments."""

from ltzd.store.migrations import plain_sql

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    plain_sql.run("0012_site_spending.sql")

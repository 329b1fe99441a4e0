"""The timeline that lanes sign on, and acknowledged differences of the books."""

from ltzd.store.migrations import plain_sql

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    plain_sql.run("0021_restore.sql")

"""The state of a rebuild of the index."""

from ltzd.store.migrations import plain_sql

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    plain_sql.run("0025_rebuild.sql")

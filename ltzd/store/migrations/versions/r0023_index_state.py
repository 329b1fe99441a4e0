"""The state of the index: the audited height, and why the indexer is stopped."""

from ltzd.store.migrations import plain_sql

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    plain_sql.run("0023_index_state.sql")

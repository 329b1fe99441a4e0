"""Facts and blocks partitioned by height."""

from ltzd.store.migrations import plain_sql

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    plain_sql.run("0024_partitions.sql")

"""Facts and blocks partitioned by height: now if there are no rows, else in the background."""

from alembic import op

from ltzd.store.migrations import partitioning, plain_sql

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    plain_sql.run("0024_partitions.sql")
    connection = op.get_bind().connection.dbapi_connection
    assert connection is not None
    for table in connection.run_async(partitioning.convert_empty):
        op.get_bind().exec_driver_sql(
            f"INSERT INTO background_migrations (name) VALUES ('partition {table}')"  # noqa: S608
        )

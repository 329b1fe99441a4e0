"""Facts and blocks partitioned by height: a new database's now, else in the background."""

from alembic import op

from ltzd.store.migrations import partitioning, plain_sql

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    plain_sql.run("0024_partitions.sql")
    connection = op.get_bind().connection.dbapi_connection
    assert connection is not None
    for table in connection.run_async(partitioning.convert_new):
        op.get_bind().exec_driver_sql(
            f"INSERT INTO background_migrations VALUES ('partition {table}', '{table}')"  # noqa: S608
        )

"""Events partitioned by time: a table without rows now, else in the background."""

from alembic import op

from ltzd.store.migrations import event_partitions

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    connection = op.get_bind().connection.dbapi_connection
    assert connection is not None
    if not connection.run_async(event_partitions.convert_new):
        op.get_bind().exec_driver_sql(
            "INSERT INTO background_migrations VALUES ('partition-by-time events', 'events')"
        )

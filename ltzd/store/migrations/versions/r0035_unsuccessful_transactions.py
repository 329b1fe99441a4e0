"""An index of the transactions that did not succeed, in the background for a table with rows."""

from functools import partial

from alembic import op

from ltzd.store.migrations import concurrent_indexes

revision = "0035"
down_revision = "0034"

TABLE = "transactions"


def upgrade() -> None:
    create = partial(concurrent_indexes.create_on_new, table=TABLE)
    connection = op.get_bind().connection.dbapi_connection
    assert connection is not None
    if not connection.run_async(create):
        # "index" would be carried out by a process of an earlier version, without this index.
        op.get_bind().exec_driver_sql(
            f"INSERT INTO background_migrations VALUES ('indexes {TABLE}', '{TABLE}')"  # noqa: S608
        )

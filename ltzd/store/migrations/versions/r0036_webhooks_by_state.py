"""An index of webhooks by their state, in the background for a table with rows."""

from functools import partial

from alembic import op

from ltzd.store.migrations import concurrent_indexes

revision = "0036"
down_revision = "0035"

TABLE = "webhooks"


def upgrade() -> None:
    replace = partial(concurrent_indexes.replace_on_new, table=TABLE)
    connection = op.get_bind().connection.dbapi_connection
    assert connection is not None
    if not connection.run_async(replace):
        op.get_bind().exec_driver_sql(
            f"INSERT INTO background_migrations VALUES ('replace-index {TABLE}', '{TABLE}')"  # noqa: S608
        )

"""An index of members' pending redemptions, in the background for a table with rows."""

from functools import partial

from alembic import op

from ltzd.store.migrations import concurrent_indexes

revision = "0034"
down_revision = "0033"

TABLE = "site_redemptions"


def upgrade() -> None:
    create = partial(concurrent_indexes.create_on_new, table=TABLE)
    connection = op.get_bind().connection.dbapi_connection
    assert connection is not None
    if not connection.run_async(create):
        op.get_bind().exec_driver_sql(
            f"INSERT INTO background_migrations VALUES ('index {TABLE}', '{TABLE}')"  # noqa: S608
        )

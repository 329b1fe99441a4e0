"""The version of each user's relays, on which admissions are decided."""

from ltzd.store.migrations import plain_sql

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    plain_sql.run("0026_relay_users.sql")

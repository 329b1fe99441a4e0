"""The event surface: switches, key rotation, brands' own limits, nonces and failed rewards."""

from ltzd.store.migrations import plain_sql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    plain_sql.run("0002_event_surface.sql")

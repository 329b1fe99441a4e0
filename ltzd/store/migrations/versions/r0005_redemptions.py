"""Charges that brands redeem."""

from ltzd.store.migrations import plain_sql

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    plain_sql.run("0005_redemptions.sql")

"""An index of members' pending redemptions."""

from ltzd.store.migrations import plain_sql

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    plain_sql.run("0034_pending_redemptions.sql")

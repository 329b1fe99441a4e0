"""The fact on chain that paid a site redemption."""

from ltzd.store.migrations import plain_sql

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    plain_sql.run("0013_redemption_payment.sql")

"""Top-ups from a treasury wallet, and voided mints of retired wallets."""

from ltzd.store.migrations import plain_sql

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    plain_sql.run("0022_treasury.sql")

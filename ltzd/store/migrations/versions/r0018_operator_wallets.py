"""The operator's wallets, as people add, drain, retire and pause them."""

from ltzd.store.migrations import plain_sql

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    plain_sql.run("0018_operator_wallets.sql")

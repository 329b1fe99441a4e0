"""The daily gas of each identity and of everybody."""

from ltzd.store.migrations import plain_sql

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    plain_sql.run("0014_gas_budgets.sql")

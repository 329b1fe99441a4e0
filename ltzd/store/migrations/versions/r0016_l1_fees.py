"""The fee that a rollup took beside the gas of a mined transaction."""

from ltzd.store.migrations import plain_sql

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    plain_sql.run("0016_l1_fees.sql")

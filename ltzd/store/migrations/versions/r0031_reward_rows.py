"""Room in the pages of rewards."""

from ltzd.store.migrations import plain_sql

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    plain_sql.run("0031_reward_rows.sql")

"""An index of the blocks of mined transactions."""

from ltzd.store.migrations import plain_sql

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    plain_sql.run("0032_mined_blocks.sql")

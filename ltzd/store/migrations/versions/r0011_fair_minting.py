"""The mint queue by brand, and the reasons for which lanes pause."""

from ltzd.store.migrations import plain_sql

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    plain_sql.run("0011_fair_minting.sql")

"""Sites: members, check-ins, redemptions, leaderboards."""

from ltzd.store.migrations import plain_sql

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    plain_sql.run("0008_site.sql")

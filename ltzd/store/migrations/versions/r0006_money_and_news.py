"""Payments, their reversals, and webhooks."""

from ltzd.store.migrations import plain_sql

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    plain_sql.run("0006_money_and_news.sql")

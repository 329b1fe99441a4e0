"""The processes of the installation, and what each reports of itself."""

from ltzd.store.migrations import plain_sql

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    plain_sql.run("0027_processes.sql")

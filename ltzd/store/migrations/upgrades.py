"""Upgrades a database to a revision with alembic. Imported only when there is one to run."""

import threading

from alembic import command
from alembic.config import Config

_ALEMBIC = threading.Lock()
"""alembic's context is a global of the process. Between processes env.py takes an advisory lock."""


def upgrade(url: str, revision: str = "head") -> None:
    """Blocks until the revision's statements have run; does nothing if the schema has it."""
    with _ALEMBIC:
        command.upgrade(_configuration(url), revision)


def _configuration(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", "ltzd:store/migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["url"] = url.replace("postgresql://", "postgresql+asyncpg://", 1).replace(
        "postgres://", "postgresql+asyncpg://", 1
    )
    return config

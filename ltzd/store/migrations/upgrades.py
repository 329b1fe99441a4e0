"""Upgrades a database to a revision with alembic. Imported only when there is one to run.

`python -m ltzd.store.migrations.upgrades` is the program of `upgrade_process.py`: it reads the URL
from its standard input, and says in its standard output why an upgrade failed.
"""

import sys
import threading

import asyncpg
from alembic import command
from alembic.config import Config
from sqlalchemy.exc import DBAPIError

from ltzd.store.connection_errors import reason_of
from ltzd.store.database import LOST
from ltzd.store.migrations.upgrade_process import (
    DATABASE_LOST,
    TABLES_LOCKED,
    UPGRADE_REFUSED,
    TablesLocked,
)

_ALEMBIC = threading.Lock()
"""alembic's context is a global of the process. Between processes env.py takes an advisory lock."""


def upgrade(url: str, revision: str = "head") -> None:
    """Block until the revision's statements have run; does nothing if the schema has it.

    Raises TablesLocked.
    """
    try:
        with _ALEMBIC:
            command.upgrade(_configuration(url), revision)
    except (DBAPIError, asyncpg.PostgresError) as error:
        if isinstance(
            _cause(error), (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
        ):
            raise TablesLocked from error
        raise


def _configuration(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", "ltzd:store/migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["url"] = url
    return config


def _main() -> int:
    """The exit code; the reason of a failure is a line on standard output."""
    try:
        upgrade(sys.stdin.readline().rstrip("\n"))
    except TablesLocked:
        return TABLES_LOCKED
    except (DBAPIError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        cause = _cause(error)
        sys.stdout.write(f"{reason_of(cause)}\n")
        return DATABASE_LOST if isinstance(cause, LOST) else UPGRADE_REFUSED
    return 0


def _cause(error: BaseException) -> BaseException:
    """asyncpg's error inside SQLAlchemy's, whose text would show the statement."""
    while isinstance(error, DBAPIError) or not isinstance(error, (asyncpg.PostgresError, OSError)):
        inner = error.orig if isinstance(error, DBAPIError) else error.__cause__
        if inner is None:
            break
        error = inner
    return error


if __name__ == "__main__":
    sys.exit(_main())

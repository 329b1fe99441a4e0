"""Finds the database and the master key for a command: a dev instance's, or the settings'."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from ltzd.cli import dev_json
from ltzd.cli.options import NOT_UTF8
from ltzd.cli.write_errors import is_of_output
from ltzd.daemon.settings.settings import read_settings
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.store import database
from ltzd.store.connection_errors import lacks_privilege, reason_of
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer

MASTER_KEY_NAME = "master.key"
_CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Target:
    """`data_dir` is None if a settings file names the database."""

    database_url: str = field(repr=False)
    master_key_file: Path
    data_dir: Path | None = None
    old_master_key_files: tuple[Path, ...] = ()
    is_for_testing: bool = False
    """A dev instance, or settings with `staging`: its LTZ have no value, and it sends requests of
    brands to its own machine."""

    def sealer(self) -> Sealer:
        """Raises Misconfigured."""
        return Sealer.from_file(self.master_key_file, *self.old_master_key_files)


def resolve_target(data_dir: Path, config: Path | None) -> Target:
    """The settings file's target if `config` is given, else the dev instance's.

    Raises Misconfigured.
    """
    if config is None:
        url = dev_json.read(data_dir).database_url
        return Target(url, data_dir / MASTER_KEY_NAME, data_dir, is_for_testing=True)
    settings = read_settings(config)
    return Target(
        settings.database_url.get_secret_value(),
        settings.master_key_file,
        old_master_key_files=settings.old_master_key_files,
        is_for_testing=settings.staging,
    )


@asynccontextmanager
async def open_connection(target: Target, command: str) -> AsyncIterator[Connection]:
    """As `connection_to`, for the target's database."""
    async with connection_to(target.database_url, command) as connection:
        yield connection


@asynccontextmanager
async def connection_to(url: str, command: str) -> AsyncIterator[Connection]:
    """A connection whose errors name what a person must do.

    Its statements end with the command's process, however that ends.
    Raises Misconfigured for a missing schema or privilege and for an argument that is no UTF-8, and
    DatabaseUnavailable.
    """
    connection = await database.connect(url, command)
    try:
        await database.end_with_client(connection)
        yield connection
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError) as error:
        from ltzd.store import schema_revisions  # noqa: PLC0415 - commands seldom need it

        await schema_revisions.read_schema(url)  # raises for a newer version's
        raise Misconfigured(
            "The database does not have this version's tables yet; run: ltzd migrate --config FILE "
            "(`ltzd dev` does this when it starts)."
        ) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise Misconfigured(lacks_privilege(error, url)) from error
    except asyncpg.DataError as error:
        if not isinstance(error.__cause__, UnicodeEncodeError):
            raise
        raise Misconfigured(NOT_UTF8) from error
    except database.LOST as error:
        if is_of_output(error):
            raise
        misuse = database.misuse_of(error, connection)
        if misuse is not None:
            raise misuse from error
        raise DatabaseUnavailable(
            f"The database broke the command off ({reason_of(error)}): check whether the change "
            "was made before you repeat the command."
        ) from error
    finally:
        with suppress(*database.LOST):
            await connection.close(timeout=_CLOSE_SECONDS)

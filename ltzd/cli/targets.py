"""Where a command's database and master key are: a dev instance's data directory, or settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from ltzd.cli import dev_json
from ltzd.daemon.settings.settings import read_settings
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.store import database
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer

MASTER_KEY_NAME = "master.key"
_FAREWELL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Target:
    """`data_dir` is None where a settings file names the place."""

    database_url: str = field(repr=False)
    master_key_file: Path
    data_dir: Path | None = None
    old_master_key_files: tuple[Path, ...] = ()

    def sealer(self) -> Sealer:
        """Raises Misconfigured."""
        return Sealer.from_file(self.master_key_file, *self.old_master_key_files)


def resolve_target(data_dir: Path, config: Path | None) -> Target:
    """Settings win. Raises Misconfigured."""
    if config is None:
        url = dev_json.read(data_dir).database_url
        return Target(url, data_dir / MASTER_KEY_NAME, data_dir)
    settings = read_settings(config)
    return Target(
        settings.database_url.get_secret_value(),
        settings.master_key_file,
        old_master_key_files=settings.old_master_key_files,
    )


@asynccontextmanager
async def open_connection(target: Target, command: str) -> AsyncIterator[Connection]:
    """What a person can put right in the database is Misconfigured, what passes Unavailable."""
    connection = await database.connect(target.database_url, command)
    try:
        yield connection
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError) as error:
        raise Misconfigured(
            "The database has no tables of this ltzd yet; run: ltzd migrate --config FILE "
            "(`ltzd dev` does it when it starts)."
        ) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise Misconfigured(
            "The database's user may not do this (42501); give it the rights of the user that "
            "migrated."
        ) from error
    except database.LOST as error:
        raise DatabaseUnavailable(
            f"The database was lost or kept us waiting ({type(error).__name__}): look whether the "
            "change was made before you repeat it."
        ) from error
    finally:
        with suppress(*database.LOST):
            await connection.close(timeout=_FAREWELL_SECONDS)

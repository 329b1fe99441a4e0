"""`ltzd brand apply`: shows what a file changes, then makes it so."""

import asyncio
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from ltzd.cli import dev_json
from ltzd.daemon.settings import read_settings
from ltzd.errors import Misconfigured
from ltzd.rules.brands import Brand, parse_brand_file
from ltzd.store import brands, database
from ltzd.store.database import Connection
from ltzd.store.sealing import Sealer

MASTER_KEY_NAME = "master.key"


@dataclass(frozen=True, slots=True)
class Place:
    """Where brands are kept."""

    database_url: str = field(repr=False)
    master_key_file: Path


def apply(file: Path, *, dry_run: bool, data_dir: Path, config: Path | None) -> None:
    """Standard output is the changes for a dry run, else the keys of a new brand; all else is
    told on standard error."""
    brand = _read(file)
    place = _in_dev(data_dir) if config is None else _in_settings(config)
    sealer = Sealer.from_file(place.master_key_file)
    asyncio.run(_apply(place.database_url, brand, sealer, dry_run=dry_run))


def _read(file: Path) -> Brand:
    try:
        return parse_brand_file(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise Misconfigured(f"The brand file {file} cannot be read: {reason}.") from error


def _in_dev(data_dir: Path) -> Place:
    return Place(dev_json.read(data_dir).database_url, data_dir / MASTER_KEY_NAME)


def _in_settings(config: Path) -> Place:
    settings = read_settings(config)
    return Place(settings.database_url.get_secret_value(), settings.master_key_file)


async def _apply(url: str, brand: Brand, sealer: Sealer, *, dry_run: bool) -> None:
    connection = await _connect(url)
    try:
        changes = brands.diff(await _in_force(connection, brand), brand)
        print(*(changes or ["nothing changes"]), sep="\n", file=None if dry_run else sys.stderr)
        if dry_run:
            return
        applied = await brands.apply(connection, brand, sealer)
    except asyncpg.UndefinedTableError as error:
        raise Misconfigured(
            "The database has no tables of ltzd yet; run: ltzd migrate --config FILE"
        ) from error
    finally:
        await connection.close()
    if applied.keys is not None:
        print(json.dumps(applied.keys.as_json(), indent=2))
        print("These keys are shown only now: keep them.", file=sys.stderr)


async def _connect(url: str) -> Connection:
    try:
        return await database.connect(url, "brand apply")
    except asyncpg.exceptions.PostgresError as error:
        raise Misconfigured(f"The database refuses the connection: {error}.") from error


async def _in_force(connection: Connection, brand: Brand) -> Brand | None:
    """None also for a configuration of another version, which applying replaces."""
    try:
        return await brands.load(connection, brand.address)
    except Misconfigured as error:
        print(f"{error.message} Applying replaces it.", file=sys.stderr)
        return None

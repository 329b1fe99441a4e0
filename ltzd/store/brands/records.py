"""Brands as the operator's commands show them: found by id or name, paused and disabled."""

from datetime import datetime
from typing import Any, Literal

import asyncpg
import msgspec

from ltzd.store import wakeups
from ltzd.store.brands.revisions import brand_change, bump_revision
from ltzd.store.database import Connection
from ltzd.values import Address, address_of

Switch = Literal["disabled", "paused"]


class BrandRecord(msgspec.Struct, frozen=True):
    """`domains` are those stored, even if this version cannot read the rest of the
    configuration.
    """

    id: Address
    name: str
    domains: tuple[str, ...]
    revision: int
    created_at: datetime
    updated_at: datetime
    disabled_at: datetime | None
    paused_at: datetime | None

    @property
    def state(self) -> str:
        if self.disabled_at is not None:
            return "disabled"
        return "active" if self.paused_at is None else "paused"

    def since(self, switch: Switch) -> datetime | None:
        """Return None while the switch is off."""
        return self.disabled_at if switch == "disabled" else self.paused_at


async def list_all(connection: Connection) -> list[BrandRecord]:
    """All brands in the order of their creation."""
    rows = await connection.fetch(
        """
        SELECT id, name, configuration -> 'domains' AS domains, revision, created_at, updated_at,
               disabled_at, paused_at
          FROM brands
         ORDER BY created_at, id
        """
    )
    return list(map(_record, rows))


async def find(connection: Connection, text: str) -> list[BrandRecord]:
    """The brand with this id in any letter case, else every brand with exactly this name."""
    rows = await connection.fetch(
        """
        SELECT id, name, configuration -> 'domains' AS domains, revision, created_at, updated_at,
               disabled_at, paused_at
          FROM brands
         WHERE id = $1 OR name = $2
         ORDER BY id
        """,
        _address(text),
        text,
    )
    records = list(map(_record, rows))
    return [record for record in records if record.id == _address(text)] or records


async def switch(connection: Connection, brand_id: Address, name: Switch, *, on: bool) -> bool:
    """Return False, and change nothing, if the switch is in this position or the brand is
    unknown.
    """
    async with brand_change(connection):
        if await _set(connection, brand_id, name, on) is None:
            return False
        await bump_revision(connection, brand_id)
        if name == "paused" and not on:
            await wakeups.notify(connection, wakeups.REWARDS)
    return True


async def _set(connection: Connection, brand_id: Address, name: Switch, on: bool) -> Any:
    """Return None if no row changes."""
    if name == "disabled":
        return await connection.fetchval(
            """
            UPDATE brands
               SET disabled_at = CASE WHEN $2 THEN now() END
             WHERE id = $1 AND (disabled_at IS NULL) = $2
         RETURNING id
            """,
            brand_id,
            on,
        )
    return await connection.fetchval(
        """
        UPDATE brands
           SET paused_at = CASE WHEN $2 THEN now() END
         WHERE id = $1 AND (paused_at IS NULL) = $2
     RETURNING id
        """,
        brand_id,
        on,
    )


def _address(text: str) -> Address | None:
    try:
        return address_of(text.lower())
    except ValueError:
        return None


def _record(row: asyncpg.Record) -> BrandRecord:
    return BrandRecord(
        id=Address(row["id"]),
        name=row["name"],
        domains=_texts(row["domains"]),
        revision=row["revision"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        disabled_at=row["disabled_at"],
        paused_at=row["paused_at"],
    )


def _texts(value: object) -> tuple[str, ...]:
    """Return no texts if another version stored another type."""
    return tuple(map(str, value)) if isinstance(value, list) else ()

"""Reseals everything that is sealed under another master key, in batches.

Each row names the key that sealed it. A rotation that was killed resumes where it stopped, and a
process that has both keys reads every row meanwhile. A batch is one transaction in which no brand's
keys change; wallets' keys never change, so no newer value is overwritten.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ltzd.errors import Misconfigured
from ltzd.store.brands.keys import sealed_to
from ltzd.store.brands.revisions import brand_change
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer

BATCH: Final = 500
_MOST_WALKS: Final = 10

_Row = Mapping[str, Any]


class Count(msgspec.Struct):
    """Rows of one table. `faults` names each row that does not open, and the reason."""

    rows: int = 0
    resealed: int = 0
    faults: list[str] = msgspec.field(default_factory=list)


class _Table(msgspec.Struct, frozen=True):
    """`key` are the columns of its primary key, and `before_all` is below each row's."""

    name: str
    key: tuple[str, ...]
    before_all: tuple[Any, ...]
    opened: Callable[[_Row, Sealer], str | bytes]
    sealed: Callable[[_Row, Any, Sealer], bytes]

    def key_of(self, row: _Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    @property
    def page(self) -> str:
        """The sealed rows after a key; its parameters are the key and a limit."""
        columns, values, count = self._key_in_sql()
        return f"""
        SELECT *
          FROM {self.name}
         WHERE key_id IS NOT NULL AND ({columns}) > ({values})
         ORDER BY {columns}
         LIMIT ${count + 1}
        """  # noqa: S608

    @property
    def write(self) -> str:
        """Its parameters are a row's key, the expected key id, and the new key id and value."""
        columns, values, count = self._key_in_sql()
        return f"""
        UPDATE {self.name}
           SET key_id = ${count + 2}, sealed = ${count + 3}
         WHERE ({columns}) = ({values}) AND key_id = ${count + 1}
     RETURNING true
        """  # noqa: S608

    def _key_in_sql(self) -> tuple[str, str, int]:
        count = len(self.key)
        return ", ".join(self.key), ", ".join(f"${n}" for n in range(1, count + 1)), count


async def rotate(connection: Connection, sealer: Sealer) -> dict[str, Count]:
    """Reseal until a pass over all rows finds each sealed with the sealer's key and opens it.

    Returns the counts by the tables' names. Raises Misconfigured if other processes go on sealing
    with another key.
    """
    counts = {table.name: Count() for table in _TABLES}
    for _ in range(_MOST_WALKS):
        resealed = 0
        for table in _TABLES:
            walk = await _walk(connection, table, sealer)
            resealed += walk.resealed
            total = counts[table.name].resealed + walk.resealed
            counts[table.name] = Count(walk.rows, total, walk.faults)
        if resealed == 0:
            return counts
    raise Misconfigured(
        "Rows are still being sealed with another key: give every process settings whose "
        "master_key_file holds the new key, and run this again."
    )


async def _walk(connection: Connection, table: _Table, sealer: Sealer) -> Count:
    alone, count, after = sealer.alone(), Count(), table.before_all
    while True:
        async with brand_change(connection):
            rows = await connection.fetch(table.page, *after, BATCH)
            changes = []
            for row in rows:
                is_done = row["key_id"] == sealer.key_id
                try:
                    content = table.opened(row, alone if is_done else sealer)
                except Misconfigured as error:
                    count.faults.append(error.message)
                    continue
                if not is_done:
                    changes.append(_change(table, row, content, sealer))
            count.rows += len(rows)
            count.resealed += len(await connection.fetchmany(table.write, changes))
        if len(rows) < BATCH:
            return count
        after = table.key_of(rows[-1])


def _change(table: _Table, row: _Row, content: str | bytes, sealer: Sealer) -> tuple[Any, ...]:
    value = table.sealed(row, content, sealer)
    return (*table.key_of(row), row["key_id"], sealer.key_id, value)


def _open_brand_secret(row: _Row, sealer: Sealer) -> str:
    place = sealed_to(row["name"], row.get("expires_at"))
    return sealer.open(row["sealed"], row["key_id"], row["brand_id"], place)


def _seal_brand_secret(row: _Row, content: str, sealer: Sealer) -> bytes:
    return sealer.seal(content, row["brand_id"], sealed_to(row["name"], row.get("expires_at")))


def _open_wallet_key(row: _Row, sealer: Sealer) -> bytes:
    return sealer.open_wallet_key(row["sealed"], row["key_id"], row["subject"], row["wallet"])


def _seal_wallet_key(row: _Row, content: bytes, sealer: Sealer) -> bytes:
    return sealer.seal_wallet_key(content, row["subject"], row["wallet"])


def _open_erasure_key(row: _Row, sealer: Sealer) -> bytes:
    return sealer.open_erasure_key(row["sealed"], row["key_id"], row["name"])


def _seal_erasure_key(row: _Row, content: bytes, sealer: Sealer) -> bytes:
    return sealer.seal_erasure_key(content, row["name"])


# API keys are stored as hashes, which no key has sealed.
_TABLES: Final = (
    _Table(
        "brand_secrets",
        ("brand_id", "name"),
        (b"", ""),
        _open_brand_secret,
        _seal_brand_secret,
    ),
    _Table(
        "retired_secrets",
        ("brand_id", "name", "expires_at"),
        (b"", "", datetime.fromtimestamp(0, UTC)),
        _open_brand_secret,
        _seal_brand_secret,
    ),
    _Table("custodial_users", ("subject",), ("",), _open_wallet_key, _seal_wallet_key),
    _Table("erasure_keys", ("name",), ("",), _open_erasure_key, _seal_erasure_key),
)

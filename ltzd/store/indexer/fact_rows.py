"""The rows of facts: the columns that all begin with, the tables, and how rows are exchanged."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import asyncpg
import msgspec

from ltzd.errors import ImpossibleFact
from ltzd.rules.indexer.log_position import PositionedFact
from ltzd.store.database import Connection
from ltzd.values import Hash32

POSITION_COLUMNS = ("block_hash", "log_index", "block_number", "transaction_hash")

FactKey = tuple[int, Hash32, int]
"""A log's block number, block hash and index, which identify a fact (`LogPosition.order`)."""
FactRow = Mapping[str, Any]


class FactTable(msgspec.Struct, frozen=True):
    """A table of facts. `columns` follow those of the position; `values` gives a fact's values."""

    name: str
    kinds: tuple[type[Any], ...]
    columns: tuple[str, ...]
    values: Callable[[Any], tuple[object, ...]]

    @property
    def all_columns(self) -> tuple[str, ...]:
        return POSITION_COLUMNS + self.columns

    def row_of(self, fact: PositionedFact) -> tuple[object, ...]:
        position = fact.position
        return (
            position.block_hash,
            position.log_index,
            position.block_number,
            position.transaction_hash,
            *self.values(fact),
        )


class TableCorrection(msgspec.Struct, frozen=True):
    """Facts to remove from a table, and facts to insert, which replace those at the same place."""

    remove: Sequence[FactKey] = ()
    insert: Sequence[Any] = ()


Corrections = Mapping[str, TableCorrection]
"""By the name of a table of one contract."""


class Exchanged(msgspec.Struct, frozen=True):
    """The rows that a correction has deleted and inserted, and the facts of the latter."""

    gone: Sequence[asyncpg.Record] = ()
    new: Sequence[FactRow] = ()
    facts: Sequence[Any] = ()

    @property
    def rows(self) -> list[Any]:
        return [*self.gone, *self.new]


async def copy_facts(
    connection: Connection, table: FactTable, facts: Sequence[Any]
) -> list[FactRow]:
    """Write facts by COPY into their table, and return their rows.

    `facts` may hold facts of other tables, too. PostgreSQL refuses a fact that is already there.
    Raises ImpossibleFact for a number that no column holds.
    """
    rows = [table.row_of(fact) for fact in facts if isinstance(fact, table.kinds)]
    if not rows:
        return []
    try:
        await connection.copy_records_to_table(table.name, columns=table.all_columns, records=rows)
    except (OverflowError, ValueError) as error:
        raise ImpossibleFact(
            f"A fact of the chain has a value that {table.name} cannot hold"
        ) from error
    return [dict(zip(table.all_columns, row, strict=True)) for row in rows]


async def read_rows(
    connection: Connection, table: FactTable, first: int, last: int
) -> dict[FactKey, tuple[object, ...]]:
    """The table's rows of the blocks first…last, as `row_of` gives them."""
    columns = ", ".join(table.all_columns)
    rows = await connection.fetch(
        f"SELECT {columns} FROM {table.name} WHERE block_number BETWEEN $1 AND $2",  # noqa: S608
        first,
        last,
    )
    return {(row[2], Hash32(row[0]), row[1]): tuple(row) for row in rows}


async def exchange(connection: Connection, table: FactTable, corrections: Corrections) -> Exchanged:
    """Delete and insert a table's facts, anywhere in its history. Safe to repeat."""
    correction = corrections.get(table.name)
    if correction is None:
        return Exchanged()
    keys = {*correction.remove, *(fact.position.order for fact in correction.insert)}
    numbers, hashes, indexes = zip(*sorted(keys), strict=True) if keys else ((), (), ())
    gone = await connection.fetch(
        f"""
        DELETE FROM {table.name}
         WHERE (block_number, block_hash, log_index)
            IN (SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::int[]))
     RETURNING *
        """,  # noqa: S608
        numbers,
        hashes,
        indexes,
    )
    new = await copy_facts(connection, table, correction.insert)
    return Exchanged(gone, new, correction.insert)

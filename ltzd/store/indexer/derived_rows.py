"""Finds derived rows that do not follow from the facts, and rebuilds them.

A search reads all facts of a contract, which takes seconds for millions of them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from ltzd.store.database import Connection

_SEARCH_SECONDS = 3600.0
_PLANS = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")
"""Off in the pools, whose statements find single rows; a search reads whole tables."""


class DerivedTable(msgspec.Struct, frozen=True):
    """A table that is derived from one contract's facts.

    `search` is a statement without parameters that gives the keys of rows that are missing, that
    differ from the facts, or that no fact explains. `rebuild` makes the rows of such keys anew.
    """

    name: str
    search: str
    rebuild: Callable[[Connection, Sequence[Any]], Awaitable[None]]


async def search(connection: Connection, table: DerivedTable) -> list[Any]:
    """The keys of rows that do not follow from the facts. In the caller's transaction."""
    for setting in _PLANS:
        await connection.execute(f"SET LOCAL {setting} = on")
    rows = await connection.fetch(table.search, timeout=_SEARCH_SECONDS)
    for setting in _PLANS:
        await connection.execute(f"SET LOCAL {setting} = off")
    return [row[0] for row in rows]

"""`ltzd index rebuild`: orders a rebuild of the index, and shows how far it is.

A process with the role indexer carries it out; the command may end meanwhile.
"""

import asyncio
from contextlib import ExitStack

from ltzd.cli.index.progress import Advance, block_progress
from ltzd.cli.output import only_errors_logged, print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.errors import Misconfigured
from ltzd.store.database import Connection
from ltzd.store.indexer import chains
from ltzd.store.indexer.rebuild import orders
from ltzd.store.indexer.rebuild.orders import RebuildProgress
from ltzd.store.operator import leases

_POLL_SECONDS = 0.5
_LEASE_SECONDS = 5.0
"""An indexer that has not renewed its lease for this time does not run."""
_LEAST_MISSES = 6
"""Reads in a row that find no indexer, before the command says so: a term may just have ended."""
_NO_INDEXER = (
    "No process with the role indexer runs: the rebuild begins, or goes on, when one starts."
)


def rebuild(target: Target, from_block: int, *, waits: bool, as_json: bool) -> int:
    """Order a rebuild, or join one that is open; returns the exit code.

    Raises Misconfigured, DatabaseUnavailable.
    """
    with only_errors_logged():
        try:
            return asyncio.run(_rebuild(target, from_block, waits=waits, as_json=as_json))
        except KeyboardInterrupt:
            print_message("The rebuild continues without this command: see `ltzd status`.")
            return 130


def cancel(target: Target, *, as_json: bool) -> int:
    """End the open rebuild; returns the exit code. Raises Misconfigured, DatabaseUnavailable."""
    return asyncio.run(_cancel(target, as_json=as_json))


async def _rebuild(target: Target, from_block: int, *, waits: bool, as_json: bool) -> int:
    async with open_connection(target, "index rebuild") as connection:
        if await chains.identity(connection) is None:
            raise Misconfigured("The database follows no chain yet: start ltzd first.")
        rebuild_id = await _order(connection, from_block)
        if not await _finds_indexer(connection):
            print_message(_NO_INDEXER)
        elif waits:
            await _follow(connection, rebuild_id, is_quiet=as_json)
        ended = await orders.find(connection, rebuild_id)
        assert ended is not None
        if as_json:
            print_json({"id": rebuild_id, "state": ended.state, "error": ended.error})
        elif ended.state == "done":
            print("The index was rebuilt.")
        else:
            print(f"Rebuild {rebuild_id} of the index: {ended.state}.")
        return 1 if ended.state == "cancelled" else 0


async def _order(connection: Connection, from_block: int) -> int:
    """The id of the new rebuild, or of an open one that keeps the same facts."""
    rebuild_id = await orders.order(connection, "ordered", from_block=from_block)
    if rebuild_id is not None:
        return rebuild_id
    rebuild = await orders.find_open(connection)
    if rebuild is None or rebuild.from_block != from_block or rebuild.state == "cancelled":
        raise Misconfigured(
            "Another rebuild of the index is open: wait for its end (`ltzd status`), or cancel it "
            "with `ltzd index rebuild --cancel`."
        )
    print_message(f"Rebuild {rebuild.id} is open already: {rebuild.state}.")
    return rebuild.id


async def _has_indexer(connection: Connection) -> bool:
    return any(
        lease.name.startswith("indexer/") and lease.renewed_seconds_ago < _LEASE_SECONDS
        for lease in await leases.list_all(connection)
    )


async def _finds_indexer(connection: Connection) -> bool:
    for _ in range(_LEAST_MISSES):
        if await _has_indexer(connection):
            return True
        await asyncio.sleep(_POLL_SECONDS)
    return False


async def _follow(connection: Connection, rebuild_id: int, *, is_quiet: bool) -> None:
    """Show the progress until the rebuild has ended, or no indexer runs any more."""
    with ExitStack() as stack:
        advance: Advance | None = None
        notices = _Notices()
        missing = 0
        while True:
            now = await orders.progress(connection)
            if now is None or now.id != rebuild_id:
                return
            missing = 0 if await _has_indexer(connection) else missing + 1
            if missing >= _LEAST_MISSES:
                notices.add(_NO_INDEXER)
            notices.add(_sentence(now))
            if now.block is not None and now.first_block is not None and now.head_number:
                if advance is None:
                    bar = block_progress(
                        "Rebuilds", now.first_block, now.head_number, is_quiet=is_quiet
                    )
                    advance = stack.enter_context(bar)
                advance(now.block)
            await asyncio.sleep(_POLL_SECONDS)


class _Notices:
    """Prints each sentence once, on standard error."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def add(self, sentence: str | None) -> None:
        if sentence is not None and sentence not in self._printed:
            self._printed.add(sentence)
            print_message(sentence)


def _sentence(rebuild: RebuildProgress) -> str | None:
    if rebuild.error is not None:
        return f"{rebuild.error.rstrip('.')}. The rebuild is tried again."
    if rebuild.state == "swapped":
        return "The fresh tables are live; rewards and redemptions are compared with them."
    return None


async def _cancel(target: Target, *, as_json: bool) -> int:
    async with open_connection(target, "index rebuild") as connection:
        rebuild = await orders.find_open(connection)
        has_cancelled = rebuild is not None and await orders.cancel(connection, rebuild.id)
        if as_json:
            print_json({"id": None if rebuild is None else rebuild.id, "cancelled": has_cancelled})
        elif has_cancelled:
            print_message("The rebuild is cancelled; an indexer drops its tables.")
        elif rebuild is None:
            print_message("No rebuild is open.")
        else:
            print_message(f"The rebuild can no longer be cancelled: {rebuild.state}.")
    return 0 if has_cancelled else 1

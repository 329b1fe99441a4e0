"""Filters that clients poll: new blocks, logs, and pooled transactions since the last poll.

The next block deletes a filter that its client has not polled for five minutes, or for which more
entries wait than a client could want. After a reorg a log filter tells the orphaned logs again with
`removed` set, newest block first. Times are in seconds of the event loop's clock.
"""

import secrets
from typing import Final

import msgspec

from ltzd.concurrency.clock import loop_time
from ltzd.dev.tester_chain.block_tree import HeadChange
from ltzd.dev.tester_chain.chain import TesterChain
from ltzd.dev.tester_chain.errors import refused
from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.dev.tester_chain.execution.transaction import EvmTransaction
from ltzd.dev.tester_chain.json_rpc.log_query import LogQuery
from ltzd.dev.tester_chain.json_rpc.objects import log_object
from ltzd.values import hex_of

IDLE_SECONDS_AT_MOST: Final = 300.0
ENTRIES_AT_MOST: Final = 100_000


class _Polled(msgspec.Struct):
    """`kind` is "blocks", "transactions", or the query of a log filter."""

    kind: str | LogQuery
    polled_at: float
    entries: list[object] = msgspec.field(default_factory=list)


class Filters:
    """The filters of all connections of one server."""

    def __init__(
        self, chain: TesterChain, idle_seconds_at_most: float = IDLE_SECONDS_AT_MOST
    ) -> None:
        self._filters: dict[int, _Polled] = {}
        self._idle_seconds_at_most = idle_seconds_at_most
        chain.head_changed.append(self._on_head_change)
        chain.transaction_pooled.append(self._on_pooled)

    def add(self, kind: str | LogQuery) -> int:
        self._delete_idle()
        number = secrets.randbits(64) | 1 << 63
        self._filters[number] = _Polled(kind, loop_time())
        return number

    def changes(self, number: int) -> list[object]:
        """The entries since the last call, oldest first. Raises JsonRpcError."""
        polled = self._existing(number)
        entries, polled.entries = polled.entries, []
        return entries

    def query(self, number: int) -> LogQuery:
        """Raises JsonRpcError unless it is a log filter."""
        kind = self._existing(number).kind
        if isinstance(kind, str):
            raise refused("filter not found")
        return kind

    def remove(self, number: int) -> bool:
        return self._filters.pop(number, None) is not None

    def _existing(self, number: int) -> _Polled:
        polled = self._filters.get(number)
        if polled is None:
            raise refused("filter not found")
        polled.polled_at = loop_time()
        return polled

    def _delete_idle(self) -> None:
        since = loop_time() - self._idle_seconds_at_most
        for number, polled in list(self._filters.items()):
            if polled.polled_at < since or len(polled.entries) > ENTRIES_AT_MOST:
                del self._filters[number]

    def _on_head_change(self, change: HeadChange) -> None:
        if not self._filters:
            return
        self._delete_idle()
        for polled in self._filters.values():
            if isinstance(polled.kind, LogQuery):
                polled.entries += _changed_logs(polled.kind, change)
            elif polled.kind == "blocks":
                polled.entries += [hex_of(block.hash) for block in change.added]

    def _on_pooled(self, transaction: EvmTransaction) -> None:
        for polled in self._filters.values():
            if polled.kind == "transactions":
                polled.entries.append(hex_of(transaction.hash))


def _changed_logs(query: LogQuery, change: HeadChange) -> list[object]:
    def logs(blocks: tuple[MinedBlock, ...], *, removed: bool) -> list[object]:
        return [
            log_object(block, log, removed=removed)
            for block in blocks
            if query.includes(block)
            for log in query.filter.logs_of(block)
        ]

    return logs(change.removed, removed=True) + logs(change.added, removed=False)

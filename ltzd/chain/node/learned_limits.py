"""The limits that one node has taught, shared by all clients of this node.

Holds the pure limits of `rules/nodes` and waits for the node's rate. Nothing is stored: after a
restart the first refusals teach it again.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from ltzd.chain.node.calls import LOGS, RpcCall, RpcError, block_span
from ltzd.chain.node.refusals import SIZE_KINDS, Refusal, RefusalKind
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.limits import Limit, after_refusal, after_success, limit_from
from ltzd.rules.nodes.log_limits import (
    LogLimits,
    after_logs,
    after_many_results,
    after_wide_range,
    log_limits,
)
from ltzd.rules.nodes.rates import (
    Rate,
    after_acceptance,
    after_rate_refusal,
    after_sending,
    ready_at,
)

log = structlog.get_logger()

_LONGEST_LOG_RANGE: Final = 100_000
"""Callers ask for fewer blocks: this bounds the range that is learned."""


class LimitsPolicy(msgspec.Struct, frozen=True):
    """First and greatest sizes of requests: calls, bytes, and results of an `eth_getLogs`."""

    batch_items: int = 100
    most_batch_items: int = 1_000
    request_bytes: int = 1024 * 1024
    most_request_bytes: int = 4 * 1024 * 1024
    results: int = 10_000
    most_results: int = 100_000


class NodeLimits:
    """`name` names the node in logs."""

    def __init__(
        self, name: str, policy: LimitsPolicy | None = None, clock: Clock = loop_time
    ) -> None:
        first = policy or LimitsPolicy()
        self.name = name
        self.clock = clock
        self._items: Limit = limit_from(first.batch_items, first.most_batch_items)
        self._bytes: Limit = limit_from(first.request_bytes, first.most_request_bytes)
        self._logs: LogLimits = log_limits(_LONGEST_LOG_RANGE, first.results, first.most_results)
        self._rate = Rate()
        self._rate_reason = ""
        self._waiting = 0
        self._first = asyncio.Lock()
        """Held by the request that is sent next."""

    @property
    def batch_items(self) -> int:
        """The most calls of the next batch."""
        return self._items.size

    def tested_items(self, size: int) -> int:
        """The most calls of a batch that the node has accepted; 0 if it may refuse `size` bytes.

        Bytes count only since the node has refused a batch for them.
        """
        if self._bytes.refused is not None and size > self._bytes.accepted:
            return 0
        return min(self._items.accepted, self._items.size)

    @property
    def request_bytes(self) -> int:
        """The most bytes of the next batch; a single call may be larger."""
        return self._bytes.size

    @property
    def range_blocks(self) -> int:
        """The most blocks of the next `eth_getLogs`."""
        return self._logs.range_blocks

    @property
    def calls_per_second(self) -> float | None:
        """The rate that the node accepts, or None while it has refused no call as one too many."""
        return self._rate.per_second

    # Rate

    async def wait_for_rate(self, calls: int, deadline: float, queue: asyncio.Lock) -> None:
        """Wait until the node's rate allows this many calls, and count them as sent.

        `queue` is the client's own. Clients of one node take turns, so that many requests of one
        client delay those of another by one request each. Raises NodeUnavailable if the turn comes
        later than `deadline`.
        """
        if self._waiting or self._pause(deadline):
            await self._take_turn(deadline, queue)
        self._rate = after_sending(self._rate, calls, self.clock())

    async def _take_turn(self, deadline: float, queue: asyncio.Lock) -> None:
        """Wait behind this client's earlier requests, and then in a queue of one per client."""
        self._waiting += 1
        try:
            async with asyncio.timeout(deadline - self.clock()), queue, self._first:
                # A refusal that arrives meanwhile makes the pause longer.
                while pause := self._pause(deadline):  # noqa: ASYNC110
                    await asyncio.sleep(pause)
        except TimeoutError as error:
            raise self._too_many() from error
        finally:
            self._waiting -= 1

    def _pause(self, deadline: float) -> float:
        """The seconds until the rate allows a call. Raises NodeUnavailable if after `deadline`."""
        now = self.clock()
        ready = ready_at(self._rate, now)
        if ready > max(now, deadline):
            raise self._too_many()
        return ready - now

    def _too_many(self) -> NodeUnavailable:
        reason = f"The node refuses calls as too many: {self._rate_reason}"
        return NodeUnavailable(reason, kind="rate_limited")

    def refused_rate(self, refusal: Refusal, reason: str) -> None:
        """Learn from a call refused as one too many; `reason` is the node's text."""
        self._rate_reason = reason
        was_limited = self._rate.per_second is not None
        self._rate = after_rate_refusal(self._rate, self.clock(), refusal.retry_after_seconds)
        if not was_limited:
            log.info("node.rate_limited", node=self.name, calls_per_second=self._rate.per_second)

    # Sizes

    def accepted(self, calls: int, size: int) -> None:
        """Count a request of so many calls and bytes that the node answered."""
        self._rate = after_acceptance(self._rate, calls)
        self._items = after_success(self._items, calls)
        if 4 * size >= 3 * self._bytes.size:  # Batches are cut below the limit.
            self._bytes = after_success(self._bytes, max(size, self._bytes.size))

    def refused_batch(self, refusal: Refusal | None, calls: int, size: int) -> None:
        """Learn from a batch that the node refused as a whole, or for some of its calls."""
        kind = refusal.kind if refusal is not None else None
        before = (self._items.size, self._bytes.size)
        if kind is RefusalKind.REQUEST_BYTES:
            self._bytes = after_refusal(self._bytes, size)
        else:
            allowed = refusal.allowed if refusal and kind is RefusalKind.BATCH_ITEMS else None
            self._items = after_refusal(self._items, calls, allowed)
        if (self._items.size, self._bytes.size) == before:
            return
        log.info(
            "node.batch_refused",
            node=self.name,
            kind=kind.value if kind else "unknown",
            calls=calls,
            calls_now=self._items.size,
            bytes_now=self._bytes.size,
        )

    def timed_out(self, calls: Sequence[RpcCall]) -> None:
        """Learn from a request without an answer: its widest range of logs, or its calls."""
        spans = [span for call in calls if (span := block_span(call)) is not None]
        if max(spans, default=1) > 1:
            self._logs = after_wide_range(self._logs, max(spans))
        elif len(calls) > 1:
            self._items = after_refusal(self._items, len(calls))

    def learn_logs(self, call: RpcCall, outcome: object) -> None:
        """Learn from the outcome of one call, if it is an `eth_getLogs` of a range."""
        if call[0] != LOGS or (blocks := block_span(call)) is None:
            return
        if isinstance(outcome, list):
            self._logs = after_logs(self._logs, blocks, len(outcome))
        elif isinstance(outcome, RpcError):
            # An unknown wording may mean the size, too.
            self._refused_logs(blocks, outcome.refusal or Refusal(RefusalKind.BLOCK_RANGE))

    def _refused_logs(self, blocks: int, refusal: Refusal) -> None:
        if refusal.kind not in SIZE_KINDS or blocks == 1:
            return
        if refusal.kind is RefusalKind.BLOCK_RANGE:
            self._logs = after_wide_range(self._logs, blocks, refusal.allowed)
        else:
            results = refusal.allowed if refusal.kind is RefusalKind.RESULTS else None
            self._logs = after_many_results(self._logs, blocks, refusal.fitting_blocks, results)
        log.info(
            "node.range_refused",
            node=self.name,
            blocks=blocks,
            blocks_now=self._logs.range_blocks,
            kind=refusal.kind.value,
        )

"""One node of a pool: its clients, and what its answers have told of it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import TypeVar

import structlog

from ltzd import telemetry
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.rpc import RpcClient, RpcError
from ltzd.chain.pool.policy import NodePoolPolicy
from ltzd.chain.pool.report import Unfit
from ltzd.concurrency.clock import Clock
from ltzd.errors import NodeUnavailable
from ltzd.rules.indexer.block_times import BlockTimes
from ltzd.rules.nodes import breaker
from ltzd.rules.nodes.breaker import CLOSED, Breaker
from ltzd.rules.nodes.choice import NodeObservation
from ltzd.values import Hash32

log = structlog.get_logger()

Answer = TypeVar("Answer")

WATCH = "watch"
"""The role of the pool's own requests."""

_LATENCY_WEIGHT = 0.2
"""The weight of the newest answer in the average of latencies."""

_LIMITED_SECONDS = 10.0
"""How long a node counts as limiting the rate of requests after it has refused one for that."""
_COMPARISONS_CONTESTED = 3
"""A node counts as contested for this many comparisons after the last contradiction."""
_ANSWERS = frozenset(("rate_limited", "busy", "behind"))
"""Kinds of faults that leave the circuit closed: the node answers, or was not asked."""
_CERTAIN = frozenset(("timeout", "oversized"))
"""Kinds of faults that open the circuit without a second failure."""


class Member:
    """`clients` holds a client per role. `has_peers`: the pool has other nodes to turn to.

    A node whose circuit has opened must prove its chain again: another node may have taken its
    address meanwhile. `check_due` is set then, for the watch.
    """

    def __init__(
        self,
        name: str,
        clients: Mapping[str, RpcClient],
        policy: NodePoolPolicy,
        clock: Clock,
        *,
        has_peers: bool,
    ) -> None:
        self.name = name
        self.clients = clients
        self._policy = policy
        self._clock = clock
        self._has_peers = has_peers
        self._breaker: Breaker = CLOSED
        self._failure = Unfit.UNREACHABLE
        self._distrusted_until = 0.0
        self._contradicted_at = 0.0
        self._contested_until = 0.0
        self._limited_until = 0.0
        self._distrust = 0.0
        self._verdict: Unfit | None = Unfit.UNVERIFIED
        self.head: Header | None = None
        self.block_seconds: float | None = None
        self._block_times = BlockTimes()
        self.code_hash: Hash32 | None = None
        """The hash of LTZ's code at this node."""
        self.latency: float | None = None
        self.answered_at: float | None = None
        self.verified_at: float | None = None
        self.in_flight = 0
        self.errors: Counter[str] = Counter()
        self.detail = ""
        self.check_due = asyncio.Event()
        self._probe: asyncio.Task[bool] | None = None

    @property
    def is_verified(self) -> bool:
        return self._verdict is None

    @property
    def is_excluded(self) -> bool:
        return self._verdict is not None and self._verdict.excludes

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open: the node failed and has not answered since."""
        return self._breaker.is_open

    @property
    def is_distrusted(self) -> bool:
        return self._clock() < self._distrusted_until

    @property
    def is_limited(self) -> bool:
        """Whether the node has lately refused a request as one too many."""
        return self._clock() < self._limited_until

    @property
    def reason(self) -> Unfit | None:
        """Why the node is not used first, apart from its height; None if nothing is wrong."""
        if self.is_excluded:
            return self._verdict
        if self.is_open:
            return self._failure
        if self.is_distrusted or self._clock() < self._contested_until:
            return Unfit.DISAGREES
        if self._verdict is None and self.is_limited:
            return Unfit.RATE_LIMITED
        return self._verdict

    def observation(self) -> NodeObservation:
        return NodeObservation(
            self.head.number if self.head else None,
            self.latency,
            self.is_open,
            self.is_distrusted,
            self.is_limited,
            self._contradicted_at,
        )

    def seconds_to_probe(self) -> float:
        """How long the node is to be left alone from now; 0 while its circuit is closed."""
        probe_at = self._breaker.probe_at
        return 0.0 if probe_at is None else max(0.0, probe_at - self._clock())

    async def measured(self, answer: Awaitable[Answer]) -> Answer:
        """Await a request to this node and learn from its end. Raises NodeUnavailable."""
        begun = self._clock()
        self.in_flight += 1
        try:
            result = await answer
        except NodeUnavailable as error:
            self.failed(error.kind, error.message)
            raise
        except RpcError:
            self._answered(self._clock() - begun)  # An error object is an answer, too.
            raise
        finally:
            self.in_flight -= 1
        self._answered(self._clock() - begun)
        return result

    def _answered(self, seconds: float) -> None:
        if not self.is_open:
            self._breaker = CLOSED  # Forgets a single failure. Only `verified` closes the circuit.
        self.answered_at = self._clock()
        previous = seconds if self.latency is None else self.latency
        self.latency = previous + _LATENCY_WEIGHT * (seconds - previous)

    def probe(self) -> asyncio.Task[bool]:
        """Whether the node answers the cheapest of all calls within `silent_after`, or refuses it.

        Callers at the same time share one call: many slow answers must not become twice as many.
        """
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._is_alive())
        return self._probe

    async def _is_alive(self) -> bool:
        try:
            async with asyncio.timeout(self._policy.silent_after):
                await self.clients[WATCH].call("eth_chainId")
        except (NodeUnavailable, TimeoutError):
            return False
        except RpcError:
            return True
        return True

    def record_slowness(self, seconds: float) -> None:
        """Record a latency of at least `seconds` for an answer that has not come yet."""
        self.latency = max(self.latency or 0.0, seconds)

    def overtaken(self) -> None:
        """Count a request that another node answered first, although it was sent there later."""
        self._count_failure("timeout", "The node is slower than another by far", 1)

    def failed(self, kind: str, detail: str) -> None:
        """Count a failed request.

        If there are other nodes, a timeout opens the circuit at once, and so does an answer that is
        larger than any honest one.
        A node that limits the rate of requests or lacks a block answers, and ltzd's own bound of
        connections says nothing about it: the circuit stays closed, and the request goes to the
        next node.
        """
        if kind in _ANSWERS:
            self._count(kind, detail)
            if kind == "rate_limited":
                self._limited_until = self._clock() + _LIMITED_SECONDS
            return
        is_certain = kind in _CERTAIN and self._has_peers
        self._count_failure(kind, detail, self._policy.breaker.failures if is_certain else 1)

    def _count(self, kind: str, detail: str) -> None:
        self.errors[kind] += 1
        self.detail = detail
        telemetry.NODE_ERRORS.labels(self.name, kind).inc()

    def _count_failure(self, kind: str, detail: str, weight: int) -> None:
        self._count(kind, detail)
        was_open = self._breaker.is_open
        self._failure = Unfit.HUNG if kind == "timeout" else Unfit.UNREACHABLE
        policy = self._policy.breaker
        self._breaker = breaker.after_failure(self._breaker, self._clock(), policy, weight)
        if self._breaker.is_open and not was_open:
            self._verdict = Unfit.UNVERIFIED
            self.check_due.set()
            log.error("node.left_alone", node=self.name, kind=kind, reason=detail)

    def observe_head(self, head: Header) -> None:
        self.head = head
        times = self._block_times.with_head(head.number, head.timestamp, self._clock())
        if times is not self._block_times:
            self._block_times, self.block_seconds = times, times.seconds()

    def verified(self) -> None:
        if self._verdict is not None:
            log.info("node.verified", node=self.name)
        self._verdict, self._breaker = None, CLOSED
        self.verified_at = self._clock()

    def rejected(self, verdict: Unfit, detail: str) -> None:
        """Record that the node does not belong to the chain; nothing is read from it."""
        if self._verdict is not verdict:
            log.critical("node.rejected", node=self.name, kind=verdict.value, reason=detail)
        self._verdict, self._breaker = verdict, CLOSED
        self.detail = detail

    def distrust(self, kind: str) -> None:
        """Record a contradiction: for growing times the node is asked only as the last.

        A node that was trusted again for `distrust_longest` begins with the shortest time.
        """
        telemetry.NODE_DISAGREEMENTS.labels(self.name, kind).inc()
        self.errors[f"disagreement_{kind}"] += 1
        self._contradicted_at = self._clock()
        if self.is_distrusted:
            return
        if self._clock() - self._distrusted_until > self._policy.distrust_longest:
            self._distrust = 0.0
        self._distrust = min(
            2 * self._distrust or self._policy.distrust_first, self._policy.distrust_longest
        )
        self._distrusted_until = self._clock() + self._distrust
        self.detail = f"contradiction: {kind}"
        log.critical("node.disagrees", node=self.name, kind=kind, seconds=self._distrust)

    def contest(self, kind: str) -> None:
        """Record a contradiction with another node when nobody can tell which of them is right.

        The node stays as good as the other, also for second opinions. A contradiction that lasts is
        logged once.
        """
        telemetry.NODE_DISAGREEMENTS.labels(self.name, kind).inc()
        self.errors[f"disagreement_{kind}"] += 1
        self.detail = f"contradiction: {kind}"
        now = self._clock()
        if now >= self._contested_until:
            log.critical("node.contested", node=self.name, kind=kind)
        self._contested_until = now + _COMPARISONS_CONTESTED * self._policy.compare_pause

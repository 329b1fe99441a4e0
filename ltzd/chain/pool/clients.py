"""The clients of a pool: one that chooses a node for each request, one that stays with its node."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeGuard, TypeVar

from ltzd.chain.node.client import Head
from ltzd.chain.node.learned_limits import NodeLimits
from ltzd.chain.node.refusals import RefusalKind
from ltzd.chain.node.rpc import RpcCall, RpcClient, RpcError
from ltzd.chain.node.traits import NodeTraits
from ltzd.chain.pool.member import Member
from ltzd.chain.pool.policy import NodePoolPolicy
from ltzd.concurrency.batcher import Batcher
from ltzd.concurrency.clock import Clock
from ltzd.errors import NodeUnavailable

Answer = TypeVar("Answer")
Send = Callable[[RpcClient], Awaitable[Answer]]


class Ranking(Protocol):
    """The pool, as its clients see it."""

    policy: NodePoolPolicy
    clock: Clock

    def ranked(self, role: str) -> list[Member]:
        """The nodes that may be asked, the best first. Raises NodeUnavailable if there is none."""

    def witnesses(self, member: Member, min_height: int) -> list[Member]:
        """The other nodes that may confirm this node, from `min_height` on, the best first."""

    def is_alone(self, member: Member) -> bool: ...

    def is_usable(self, member: Member) -> bool:
        """Whether nothing speaks against asking the node first."""

    def use(self, role: str, member: Member) -> None:
        """Make the node the one in use."""


class PoolClient:
    """Gives each request to the best node, and to the next one after a failure or a long silence.

    Requests only read, or publish signed bytes: a request that two nodes receive does no harm.
    """

    def __init__(self, pool: Ranking, role: str) -> None:
        self._pool = pool
        self._role = role
        self._batcher: Batcher[RpcCall, Any] = Batcher(self.batch)
        self._traits = NodeTraits()

    async def call(self, method: str, *params: object) -> Any:
        return await self._ask(lambda rpc: rpc.call(method, *params))

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        return await self._ask(lambda rpc: rpc.batch(calls)) if calls else []

    async def outcomes(self, calls: Sequence[RpcCall]) -> list[Any]:
        return await self._ask(lambda rpc: rpc.outcomes(calls)) if calls else []

    async def batched_call(self, method: str, *params: object) -> Any:
        return await self._batcher.ask((method, params))

    def pinned(self) -> RpcClient:
        """Raises NodeUnavailable if no node may be asked."""
        return PinnedClient(self._pool, self._pool.ranked(self._role)[0], self._role)

    async def newest(self, read: Callable[[RpcClient], Awaitable[Head]]) -> tuple[RpcClient, Head]:
        """The best node's answer, or that of the first usable node that is asked meanwhile.

        The others are asked while the best node is silent, or if it shows no block. A block below
        the one that the best node has shown does not count: a node that is behind must not move a
        decision back. The node that answers instead is the one in use from then on. Raises
        NodeUnavailable and RpcError, as the best node's answer says.
        """
        best, *others = self._pool.ranked(self._role)
        waiting = [best, *filter(self._pool.is_usable, others)]
        shown = best.head.number if best.head else 0
        clock, begun = self._pool.clock, self._pool.clock()
        reads: dict[asyncio.Task[tuple[RpcClient, Head]], Member] = {}
        fault: NodeUnavailable | RpcError | None = None
        try:
            while waiting or reads:
                if waiting:
                    member = waiting.pop(0)
                    client = PinnedClient(self._pool, member, self._role)
                    reads[asyncio.ensure_future(client.newest(read))] = member
                done, _ = await asyncio.wait(
                    reads,
                    timeout=self._pool.policy.hedge_newest_after if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in sorted(done, key=lambda task: reads[task] is not best):
                    member, error = reads.pop(task), task.exception()
                    if isinstance(error, NodeUnavailable | RpcError):
                        if member is best:
                            fault = error
                        continue
                    pinned, head = task.result()
                    if member is best:
                        return pinned, head
                    if head.number >= shown:
                        if fault is None:
                            best.record_slowness(clock() - begun)
                        self._pool.use(self._role, member)
                        return pinned, head
        finally:
            for task in reads:
                task.cancel()
        assert fault is not None, "the best node is waited for"
        raise fault

    def others(self, min_height: int) -> Sequence[RpcClient]:
        """Raises RuntimeError: only a pinned client has others."""
        raise RuntimeError("others() needs a pinned client")

    @property
    def is_alone(self) -> bool:
        return self._pool.is_alone(self._pool.ranked(self._role)[0])

    def publishers(self) -> Sequence[RpcClient]:
        """All nodes that may be asked, the best first. Raises NodeUnavailable if there is none."""
        members = self._pool.ranked(self._role)
        return [PinnedClient(self._pool, member, self._role) for member in members]

    @property
    def traits(self) -> NodeTraits:
        """The traits that all nodes have: no request to the pool relies on what one node lacks."""
        return self._traits

    @property
    def limits(self) -> NodeLimits:
        """The limits of the best node now. Raises NodeUnavailable if no node may be asked."""
        return self._pool.ranked(self._role)[0].clients[self._role].limits

    def report_contradiction(self, kind: str) -> None:
        self._pool.ranked(self._role)[0].distrust(kind)

    def report_dispute(self, kind: str) -> None:
        """Raises RuntimeError: only a pinned client tells which node was asked."""
        raise RuntimeError("report_dispute() needs a pinned client")

    def report_silence(self) -> None:
        """Raises RuntimeError, as `report_dispute`."""
        raise RuntimeError("report_silence() needs a pinned client")

    async def _ask(self, send: Send[Answer]) -> Answer:
        members = self._pool.ranked(self._role)
        if len(members) == 1:
            return await members[0].measured(send(members[0].clients[self._role]))
        return await self._race(members, send)

    async def _race(self, members: Sequence[Member], send: Send[Answer]) -> Answer:
        """The first answer; each failure, and each pause without an answer, asks one node more.

        An answer that the node lacks a call's block or method counts as a failure.
        """
        waiting = list(members)
        requests: dict[asyncio.Task[Answer], tuple[Member, float]] = {}
        fault: NodeUnavailable | RpcError | None = None
        clock, hedge_after = self._pool.clock, self._pool.policy.hedge_after
        try:
            while waiting or requests:
                if waiting:
                    member = waiting.pop(0)
                    answer = member.measured(send(member.clients[self._role]))
                    requests[asyncio.ensure_future(answer)] = (member, clock())
                done, _ = await asyncio.wait(
                    requests,
                    timeout=hedge_after if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    del requests[task]
                    error = task.exception()
                    if not isinstance(error, NodeUnavailable) and not _may_answer_elsewhere(error):
                        _note_overtaken(requests.values(), clock() - hedge_after)
                        return task.result()
                    if isinstance(error, RpcError) or not isinstance(fault, RpcError):
                        fault = error
        finally:
            for task in requests:
                task.cancel()
        assert fault is not None, "no node was asked"
        raise fault


def _may_answer_elsewhere(error: BaseException | None) -> TypeGuard[RpcError]:
    refusal = error.refusal if isinstance(error, RpcError) else None
    return refusal is not None and refusal.kind in {RefusalKind.BEHIND, RefusalKind.UNSUPPORTED}


def _note_overtaken(requests: Iterable[tuple[Member, float]], sent_before: float) -> None:
    """Record nodes that were asked long before the node that answered: they hang or are slow."""
    for member, sent_at in requests:
        if sent_at <= sent_before:
            member.overtaken()


class PinnedClient:
    """Stays with one node. If the pool has other nodes, the wait for an answer is shorter."""

    def __init__(self, pool: Ranking, member: Member, role: str) -> None:
        self._pool = pool
        self._member = member
        self._role = role
        self._rpc = member.clients[role]

    async def call(self, method: str, *params: object) -> Any:
        return await self._bounded(self._rpc.call(method, *params))

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        return await self._bounded(self._rpc.batch(calls)) if calls else []

    async def outcomes(self, calls: Sequence[RpcCall]) -> list[Any]:
        return await self._bounded(self._rpc.outcomes(calls)) if calls else []

    async def batched_call(self, method: str, *params: object) -> Any:
        return await self._bounded(self._rpc.batched_call(method, *params))

    def pinned(self) -> RpcClient:
        return self

    async def newest(self, read: Callable[[RpcClient], Awaitable[Head]]) -> tuple[RpcClient, Head]:
        return self, await read(self)

    def others(self, min_height: int) -> Sequence[RpcClient]:
        members = self._pool.witnesses(self._member, min_height)
        return [PinnedClient(self._pool, member, self._role) for member in members]

    @property
    def is_alone(self) -> bool:
        return self._pool.is_alone(self._member)

    def publishers(self) -> Sequence[RpcClient]:
        return (self,)

    @property
    def traits(self) -> NodeTraits:
        return self._rpc.traits

    @property
    def limits(self) -> NodeLimits:
        return self._rpc.limits

    def report_contradiction(self, kind: str) -> None:
        self._member.distrust(kind)

    def report_dispute(self, kind: str) -> None:
        self._member.contest(kind)

    def report_silence(self) -> None:
        self._member.failed("timeout", "The node does not answer in time")

    async def _bounded(self, answer: Awaitable[Answer]) -> Answer:
        return await self._member.measured(self._in_time(answer))

    async def _in_time(self, answer: Awaitable[Answer]) -> Answer:
        if self.is_alone:
            return await answer
        limit = self._pool.policy.pinned_timeout
        try:
            async with asyncio.timeout(limit) as deadline:
                return await self._unless_silent(answer)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise NodeUnavailable(
                f"The node does not answer within {limit:g} s", kind="timeout"
            ) from error

    async def _unless_silent(self, answer: Awaitable[Answer]) -> Answer:
        """The answer. Raises NodeUnavailable if the node answers nothing else, either."""
        seconds = self._pool.policy.silent_after
        request = asyncio.ensure_future(answer)
        try:
            done, _ = await asyncio.wait((request,), timeout=seconds)
            if not done:
                probe = self._member.probe()
                await asyncio.wait((request, probe), return_when=asyncio.FIRST_COMPLETED)
                if not request.done() and not probe.result():
                    raise NodeUnavailable(
                        f"The node has answered nothing for {2 * seconds:g} s", kind="timeout"
                    )
            return await request
        finally:
            request.cancel()

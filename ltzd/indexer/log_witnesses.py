"""Compares a node's logs, and the last block's time, with other nodes' before they are written.

Block hashes link blocks, but not the answers about their logs: a node could omit, change or invent
logs of a true block. While other nodes are usable, one of them must show the same logs. If nodes
differ, the logs of the most nodes count. In a tie the block decides: its hash proves its receipts,
whoever shows them. Of a chain whose blocks prove nothing, logs that contradict the block's bloom do
not count, and logs that one side merely lacks do; if nothing decides, nothing is written.

A false time would stay in the index, because no later block contradicts it. If nodes show different
times of one block, its hash decides, or else the most nodes.

Settled blocks are never undone. So those that another node denies are written only if a third node
shows them, too.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec
import structlog

from ltzd.chain.node import bloom
from ltzd.chain.node.answers.typed import LARGEST_COUNT, Header, quantity
from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable
from ltzd.indexer.block_times import BLOCK_TIME
from ltzd.indexer.branches import BRANCH
from ltzd.indexer.contracts import NodeLog
from ltzd.indexer.log_checks import LOGS
from ltzd.indexer.slices import LOGS_PER_SLICE, slices
from ltzd.rules.indexer.disputes import SECOND_CHECK_SECONDS
from ltzd.values import Address, Hash32, address_of, hash_of

log = structlog.get_logger()

_ASK_AGAIN_SECONDS = 0.05
_ATTEMPTS = 5
"""Attempts in one step: a block usually reaches the other nodes within tenths of a second."""
_SAME_DISPUTE_SECONDS = 60.0
"""A dispute that comes again within this time is still the same."""

LogKey = tuple[int, Hash32, int, bytes, tuple[bytes, ...], str, Hash32]
"""A log's height, block, index, contract, topics, data and transaction."""
ReadLogs = Callable[[Node], Awaitable[tuple[Sequence[NodeLog], Header | None]]]
"""A node's logs of the blocks in question, and its header of the last; None if it has none.

Raises NodeUnavailable, also for a node that is silent for the witnesses' patience, and reports it.
"""


class LogQuestion(msgspec.Struct, frozen=True):
    """A question to each node: the logs of `contracts` in the blocks up to `last`.

    `is_settled`: the node asked first counts these blocks as settled.
    """

    contracts: Sequence[Address]
    last: Header
    read: ReadLogs
    is_settled: bool = False


class ConfirmedLogs(msgspec.Struct, frozen=True):
    """Logs, and the node that shows them and `last`, the last block in question.

    If this is another node than the one asked first, that one is refuted: the headers must be read
    from this node, too.
    """

    node: Node
    logs: Sequence[NodeLog]
    last: Header


class Testimony(msgspec.Struct, frozen=True):
    """`last` is the node's block at the last height in question."""

    node: Node
    logs: Mapping[LogKey, NodeLog]
    last: Header

    @property
    def keys(self) -> frozenset[LogKey]:
        return frozenset(self.logs)

    @property
    def time(self) -> int:
        """Of the last block, in Unix seconds."""
        return self.last.timestamp

    def agrees_with(self, other: "Testimony") -> bool:
        return self.keys == other.keys and self.time == other.time

    def confirmed(self) -> ConfirmedLogs:
        return ConfirmedLogs(self.node, list(self.logs.values()), self.last)

    def provable_keys(self, number: int) -> frozenset[tuple[object, ...]]:
        """The part of a block's logs that its hash can prove: all but the logs' transactions."""
        return frozenset(key[:-1] for key in self.logs if key[0] == number)


class LogWitnesses:
    """Remembers since when no other node has answered, and when nodes last disagreed."""

    def __init__(
        self, patience_seconds: float = SECOND_CHECK_SECONDS, clock: Clock = loop_time
    ) -> None:
        self.patience_seconds = patience_seconds
        self._clock = clock
        self._unwitnessed_since: float | None = None
        self._disputed_at = -math.inf

    @property
    def is_disputed(self) -> bool:
        """Whether nodes have lately contradicted each other, and nothing told which is right."""
        return self._clock() - self._disputed_at <= _SAME_DISPUTE_SECONDS

    async def confirmed(
        self, node: Node, logs: Iterable[NodeLog], question: LogQuestion
    ) -> ConfirmedLogs | None:
        """The logs that other nodes confirm.

        Returns None if nothing decides between the nodes, if other nodes deny settled blocks, or if
        no other node has the blocks yet. If no other node answers, the logs count after the
        policy's waiting time. Raises NodeUnavailable if this node's logs are malformed.
        """
        if node.is_alone:
            kept = [entry for entry in logs if not entry.get("removed")]
            return ConfirmedLogs(node, kept, question.last)
        own = Testimony(node, await _by_key(logs), question.last)
        begun = self._clock()
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
            witnesses, deniers, has_late = await self._witnesses(own, question)
            if witnesses and not witnesses[-1].agrees_with(own):
                return await self._decided([own, *witnesses], question)
            if deniers and not witnesses and not has_late:
                break
            if witnesses or not has_late:
                self._unwitnessed_since = None
                return own.confirmed()
            if self._clock() - begun >= self.patience_seconds:
                break  # A witness is silent.
        if deniers:
            self._note_denial(own, deniers)
            return None
        return own.confirmed() if self._note_silence(node, begun) else None

    def _note_dispute(self, testimonies: Iterable[Testimony], kind: str = LOGS) -> None:
        """Each step asks again: a dispute that lasts is logged once."""
        for testimony in testimonies:
            testimony.node.report_dispute(kind)
        if not self.is_disputed:
            effect = "nothing is indexed until they agree"
            log.critical("indexer.nodes_disagree_on_logs", about=kind, effect=effect)
        self._disputed_at = self._clock()

    def _note_denial(self, own: Testimony, deniers: Sequence[Testimony]) -> None:
        """Nobody else shows this node's block, and `deniers` show another one."""
        if len(deniers) > 1:
            own.node.report_contradiction(BRANCH)
        else:
            self._note_dispute([own, *deniers])

    def _note_silence(self, node: Node, begun: float) -> bool:
        """Note that no other node answers; return whether that has lasted for the patience."""
        if self._unwitnessed_since is None:
            self._unwitnessed_since = begun
        waited = self._clock() - self._unwitnessed_since
        return node.is_alone or waited >= self.patience_seconds

    async def _witnesses(
        self, own: Testimony, question: LogQuestion
    ) -> tuple[list[Testimony], list[Testimony], bool]:
        """Ask the other nodes until one agrees, or all have answered.

        Returns the nodes that show the last block, those that deny it although it is settled, and
        whether a node may become a witness in a moment: it lacks the blocks, or does not answer. A
        node that denies a block that is not settled is none of these: `Branches` decides which
        branch counts.
        """
        witnesses: list[Testimony] = []
        deniers: list[Testimony] = []
        others = own.node.others()
        has_late = not others
        for other in others:
            testimony = await self._testimony(other, question)
            if testimony is not None and testimony.last.hash == own.last.hash:
                witnesses.append(testimony)
                if testimony.agrees_with(own):
                    break
            elif testimony is not None and question.is_settled:
                deniers.append(testimony)
            else:
                has_late = has_late or not await self._is_elsewhere(own.node, other)
        return witnesses, deniers, has_late

    async def _testimony(self, other: Node, question: LogQuestion) -> Testimony | None:
        """Return None if the node does not answer in time, or has no block at the last height."""
        try:
            # `read` bounds each request; a range may take several.
            async with asyncio.timeout(2 * self.patience_seconds):
                logs, last = await question.read(other)
                return None if last is None else Testimony(other, await _by_key(logs), last)
        except (NodeUnavailable, TimeoutError):
            return None

    async def _is_elsewhere(self, node: Node, other: Node) -> bool:
        """Whether the other node's head is not on this node's branch."""
        try:
            async with asyncio.timeout(self.patience_seconds):
                head = await other.block("latest")
                block = await node.block(head.number) if head is not None else None
        except (NodeUnavailable, TimeoutError):
            return False
        return head is not None and block is not None and block.hash != head.hash

    async def _decided(
        self, testimonies: Sequence[Testimony], question: LogQuestion
    ) -> ConfirmedLogs | None:
        """The logs that most nodes show, or else that the blocks prove or at least allow.

        Returns None if nothing decides. `testimonies` begins with the node in use.
        """
        dated = await self._rightly_dated(testimonies)
        if not dated:
            self._note_dispute(testimonies, BLOCK_TIME)
            return None
        (keys, votes), *_ = Counter(testimony.keys for testimony in dated).most_common()
        if 2 * votes <= len(dated):
            possible = await self._unrefuted(dated, question)
            if len({testimony.keys for testimony in possible}) > 1:
                possible = await _plausible(possible[0], possible[-1])
            if not possible:
                self._note_dispute(dated)
                return None
            keys = possible[0].keys
        for testimony in dated:
            # A node that lacks logs may have an index that lags; the node in use must not be used
            # on.
            if testimony.keys != keys and (testimony is testimonies[0] or testimony.keys - keys):
                testimony.node.report_contradiction(LOGS)
        return next(each for each in dated if each.keys == keys).confirmed()

    async def _rightly_dated(self, testimonies: Sequence[Testimony]) -> Sequence[Testimony]:
        """The testimonies with the true time of the last block; reports the other nodes.

        Empty if nothing decides.
        """
        times = Counter(testimony.time for testimony in testimonies)
        if len(times) == 1:
            return testimonies
        time = await self._proved_time(testimonies)
        if time is None:
            (time, votes), *_ = times.most_common()
            if 2 * votes <= len(testimonies):
                return ()
        for testimony in testimonies:
            if testimony.time != time:
                testimony.node.report_contradiction(BLOCK_TIME)
        return [testimony for testimony in testimonies if testimony.time == time]

    async def _proved_time(self, testimonies: Iterable[Testimony]) -> int | None:
        """The last block's time, proved by a node; None if none proves it."""
        for testimony in testimonies:
            with suppress(NodeUnavailable, TimeoutError):
                async with asyncio.timeout(self.patience_seconds):
                    header = await testimony.node.proven_header(testimony.last)
                    if header is not None:
                        return header.timestamp
        return None

    async def _unrefuted(
        self, testimonies: Sequence[Testimony], question: LogQuestion
    ) -> Sequence[Testimony]:
        """The testimonies that remain once the blocks on which they differ are proved in turn."""
        left = testimonies
        while len({testimony.keys for testimony in left}) > 1:
            all_keys = [testimony.keys for testimony in left]
            number = min(
                key[0] for key in frozenset.union(*all_keys) - frozenset.intersection(*all_keys)
            )
            proved = await self._proved_logs(left, number, question)
            if proved is None:
                break
            right = proved.provable_keys(number)
            agreeing = [each for each in left if each.provable_keys(number) == right]
            if len(agreeing) == len(left):
                break  # They differ in the transactions alone.
            left = agreeing
        return left

    async def _proved_logs(
        self, testimonies: Iterable[Testimony], number: int, question: LogQuestion
    ) -> Testimony | None:
        """The logs of the block at this height, proved by a node; None if none proves them.

        All nodes show the last block, whose hash proves its ancestors, and each of them its logs.
        """
        for node in (testimony.node for testimony in testimonies):
            # A node that is slow to prove logs stays usable: the other one would be believed alone.
            with suppress(NodeUnavailable, TimeoutError):
                async with asyncio.timeout(2 * self.patience_seconds):
                    logs = await _proved_logs_at(node, number, question)
                    if logs is not None:
                        return Testimony(node, await _by_key(logs), question.last)
        return None


async def _proved_logs_at(
    node: Node, number: int, question: LogQuestion
) -> Sequence[NodeLog] | None:
    """Raises NodeUnavailable."""
    block_hash = await node.proven_ancestor(question.last, number)
    if block_hash is None:
        return None
    logs, is_proved = await node.proven_logs(block_hash, *question.contracts)
    return logs if is_proved else None


async def _plausible(first: Testimony, second: Testimony) -> Sequence[Testimony]:
    """The testimony whose own logs fit the blocks' blooms, if the other has none that do."""
    only_first = await _fit_blooms(first, first.keys - second.keys)
    only_second = await _fit_blooms(second, second.keys - first.keys)
    if only_first == only_second:
        return ()
    return (first,) if only_first else (second,)


async def _fit_blooms(testimony: Testimony, keys: Iterable[LogKey]) -> bool:
    """Whether there are such logs, and each fits the bloom of its block."""
    logs = {key: testimony.logs[key] for key in keys}
    numbers = sorted({number for number, *_ in logs})
    headers = {
        header.number: header
        for header in await testimony.node.headers(numbers)
        if header is not None
    }
    return bool(logs) and all(_fits(entry, headers.get(key[0])) for key, entry in logs.items())


def _fits(entry: NodeLog, header: Header | None) -> bool:
    """`header` is that of the log's height. Every event of the contracts has a topic."""
    if header is None:
        return False
    topics = [hash_of(topic) for topic in entry["topics"]]
    if hash_of(entry["blockHash"]) != header.hash or not topics:
        return False
    values = [address_of(entry["address"]), *topics]
    return not any(header.bloom) or bloom.may_hold(header.bloom, *values)


async def _by_key(logs: Iterable[NodeLog]) -> dict[LogKey, NodeLog]:
    """Raises NodeUnavailable for a malformed log."""
    by_key: dict[LogKey, NodeLog] = {}
    for entries in slices(logs, LOGS_PER_SLICE):
        try:
            by_key.update({_key(entry): entry for entry in entries if not entry.get("removed")})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NodeUnavailable("The node's log is malformed", kind="malformed") from error
        await asyncio.sleep(0)
    return by_key


def _key(entry: NodeLog) -> LogKey:
    return (
        quantity(entry["blockNumber"], LARGEST_COUNT),
        hash_of(entry["blockHash"]),
        int(entry["logIndex"], 16),
        address_of(entry["address"]),
        tuple(hash_of(topic) for topic in entry["topics"]),
        str(entry["data"]).lower(),
        hash_of(entry["transactionHash"]),
    )

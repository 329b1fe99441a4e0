"""Compares a node's logs with other nodes' before they are written.

Block hashes link blocks, but not the answers about their logs: a node could omit, change or invent
logs of a true block. While other nodes are usable, one of them must show the same logs. If nodes
differ, the logs of the most nodes count. In a tie the block decides: its hash proves its receipts,
whoever shows them. Of a chain whose blocks prove nothing, logs that contradict the block's bloom do
not count, and logs that one side merely lacks do; if nothing decides, nothing is written.

Settled blocks are never undone. So those that another node denies are written only if a third node
shows them, too.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from ltzd.chain.node import bloom
from ltzd.chain.node.answers.typed import LARGEST_COUNT, Header, quantity
from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable
from ltzd.indexer.branches import BRANCH
from ltzd.indexer.contracts import NodeLog
from ltzd.indexer.log_checks import LOGS
from ltzd.indexer.slices import slices
from ltzd.rules.indexer.disputes import SECOND_LOOK_SECONDS
from ltzd.values import Address, Hash32, address_of, hash_of

log = structlog.get_logger()

_ASK_AGAIN_SECONDS = 0.05
_ATTEMPTS = 5
"""Attempts in one step: a block usually reaches the other nodes within tenths of a second."""
_SAME_DISPUTE_SECONDS = 60.0
"""A dispute that comes again within this time is still the same."""
_LOGS_PER_SLICE = 200
"""Logs that are compared before other tasks of this process run."""

LogKey = tuple[int, Hash32, int, bytes, tuple[bytes, ...], str, Hash32]
"""A log's height, block, index, contract, topics, data and transaction."""
ReadLogs = Callable[[Node], Awaitable[tuple[Sequence[NodeLog], Hash32 | None]]]
"""A node's logs of the blocks in question, and its hash of the last of them; None if it has none.

Raises NodeUnavailable, also for a node that is silent for the witnesses' patience, and reports it.
"""


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """A question to each node: the logs of `contracts` in the blocks up to `last`.

    `is_settled`: the node asked first counts these blocks as settled.
    """

    contracts: Sequence[Address]
    last: Header
    read: ReadLogs
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Testimony:
    """`shows_block` is false for a node with another block at the last height in question."""

    node: Node
    logs: Mapping[LogKey, NodeLog]
    shows_block: bool = True

    @property
    def keys(self) -> frozenset[LogKey]:
        return frozenset(self.logs)

    def provable_keys(self, number: int) -> frozenset[tuple[object, ...]]:
        """The part of a block's logs that its hash can prove: all but the logs' transactions."""
        return frozenset(key[:-1] for key in self.logs if key[0] == number)


class LogWitnesses:
    """Remembers since when no other node has answered, and when nodes last disagreed."""

    def __init__(
        self, patience_seconds: float = SECOND_LOOK_SECONDS, clock: Clock = loop_time
    ) -> None:
        self.patience_seconds = patience_seconds
        self._clock = clock
        self._unwitnessed_since: float | None = None
        self._disputed_at = -math.inf

    @property
    def is_disputed(self) -> bool:
        """Whether nodes have lately shown different logs, and nothing told which are right."""
        return self._clock() - self._disputed_at <= _SAME_DISPUTE_SECONDS

    async def confirmed(
        self, node: Node, logs: Iterable[NodeLog], question: LogQuestion
    ) -> list[NodeLog] | None:
        """The logs that other nodes confirm.

        Returns None if nothing decides between the nodes, if other nodes deny settled blocks, or if
        no other node has the blocks yet. If no other node answers, the logs count after the
        policy's waiting time. Raises NodeUnavailable if this node's logs are malformed.
        """
        if node.is_alone:
            return [entry for entry in logs if not entry.get("removed")]
        own = Testimony(node, await _by_key(logs))
        begun = self._clock()
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
            witnesses, deniers, has_late = await self._witnesses(own, question)
            if witnesses and witnesses[-1].keys != own.keys:
                decided = await self._decided([own, *witnesses], question)
                if decided is None:
                    self._note_dispute([own, *witnesses])
                return decided
            if deniers and not witnesses and not has_late:
                break
            if witnesses or not has_late:
                self._unwitnessed_since = None
                return list(own.logs.values())
            if self._clock() - begun >= self.patience_seconds:
                break  # A witness is silent.
        if deniers:
            self._note_denial(own, deniers)
            return None
        return list(own.logs.values()) if self._is_patience_over(node, begun) else None

    def _note_dispute(self, testimonies: Iterable[Testimony]) -> None:
        """Each step asks again: a dispute that lasts is logged once."""
        for testimony in testimonies:
            testimony.node.report_dispute(LOGS)
        if not self.is_disputed:
            log.critical(
                "indexer.nodes_disagree_on_logs", effect="nothing is indexed until they agree"
            )
        self._disputed_at = self._clock()

    def _note_denial(self, own: Testimony, deniers: Sequence[Testimony]) -> None:
        """Nobody else shows this node's block, and `deniers` show another one."""
        if len(deniers) > 1:
            own.node.report_contradiction(BRANCH)
        else:
            self._note_dispute([own, *deniers])

    def _is_patience_over(self, node: Node, begun: float) -> bool:
        if self._unwitnessed_since is None:
            self._unwitnessed_since = begun
        waited = self._clock() - self._unwitnessed_since
        return node.is_alone or waited >= self.patience_seconds

    async def _witnesses(
        self, own: Testimony, question: LogQuestion
    ) -> tuple[list[Testimony], list[Testimony], bool]:
        """Asks the other nodes until one agrees, or all have answered.

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
            if testimony is not None and testimony.shows_block:
                witnesses.append(testimony)
                if testimony.keys == own.keys:
                    break
            elif testimony is not None and question.is_settled:
                deniers.append(testimony)
            else:
                has_late = has_late or not await self._is_elsewhere(own.node, other)
        return witnesses, deniers, has_late

    async def _testimony(self, other: Node, question: LogQuestion) -> Testimony | None:
        """Returns None if the node does not answer in time, or has no block at the last height."""
        try:
            # `read` bounds each request; a range may take several.
            async with asyncio.timeout(2 * self.patience_seconds):
                logs, shown = await question.read(other)
                if shown is None:
                    return None
                return Testimony(other, await _by_key(logs), shown == question.last.hash)
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
    ) -> list[NodeLog] | None:
        """The logs that most nodes show, or else that the blocks prove or at least allow.

        Returns None if nothing decides. `testimonies` begins with the node in use.
        """
        (keys, votes), *_ = Counter(testimony.keys for testimony in testimonies).most_common()
        if 2 * votes <= len(testimonies):
            possible = await self._unrefuted(testimonies, question)
            if len({testimony.keys for testimony in possible}) > 1:
                possible = await _plausible(possible[0], possible[-1])
            if not possible:
                return None
            keys = possible[0].keys
        for testimony in testimonies:
            # A node that lacks logs may have an index that lags; the node in use must not be used
            # on.
            if testimony.keys != keys and (testimony is testimonies[0] or testimony.keys - keys):
                testimony.node.report_contradiction(LOGS)
        return next(list(each.logs.values()) for each in testimonies if each.keys == keys)

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
                        return Testimony(node, await _by_key(logs))
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
    for entries in slices(logs, _LOGS_PER_SLICE):
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

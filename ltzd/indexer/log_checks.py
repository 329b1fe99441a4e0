"""Checks that a node left out no logs of a block: by the bloom, the block's hash, its receipts,
and a second node.

A node that has not indexed a block yet may answer `eth_getLogs` with an empty list. The block's
bloom shows which contracts may have logged; ltzd then asks again for a contract without logs. If
every answer of the node is empty, the block's hash must prove it, or a second node must agree. Some
chains leave all blooms zero: there a bloom proves nothing, and ltzd asks again for each block with
transactions. Settled blocks are checked by the range (`completeness/doubts`).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import structlog

from ltzd import telemetry
from ltzd.chain.node import bloom
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable
from ltzd.indexer.completeness.block_logs import fits_block, read_block_logs
from ltzd.indexer.completeness.doubts import RangeDoubts, is_doubted
from ltzd.indexer.contracts import IndexedContract, NodeLog
from ltzd.rules.indexer.disputes import SECOND_CHECK_SECONDS
from ltzd.values import Address, Hash32, address_of

log = structlog.get_logger()

LOGS = "logs"
"""The kind of a contradiction about a block's logs."""
_BLOCKS_AT_ONCE = 8
"""Doubted blocks whose receipts are asked for at the same time."""
_HEADERS_PER_SLICE = 256
"""Blooms that are tested before other tasks of this process run."""


class LogChecks:
    """Remembers whether the chain fills its blooms, and which answers await a second node."""

    def __init__(
        self, patience_seconds: float = SECOND_CHECK_SECONDS, clock: Clock = loop_time
    ) -> None:
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._fills_blooms: bool | None = None
        """Is None until a block has shown whether the chain fills its blooms."""
        self._unconfirmed: tuple[Hash32, float] | None = None
        """The block whose empty answer awaits a second node, and since when."""

    def learn(self, headers: Iterable[Header], logs_of: Mapping[Hash32, object]) -> None:
        """Learn from blocks and their logs whether this chain fills its blooms."""
        for header in headers:
            if any(header.bloom):
                self._fills_blooms = True
            elif header.hash in logs_of:
                self._fills_blooms = False

    def suspects(
        self,
        node: Node,
        header: Header,
        contracts: Sequence[IndexedContract],
        logs: Iterable[NodeLog],
    ) -> list[Address]:
        """Contracts without a log in the answer that may have logged in this block.

        A zero bloom of a block with transactions is believed only of a single node, and only on a
        chain that fills its blooms: a node that hides logs may hide them from the bloom, too.
        """
        answered = _addresses(logs)
        missing = [contract for contract in contracts if contract.address not in answered]
        if not any(header.bloom) and not (self._fills_blooms and node.is_alone):
            # One log would have been answered with the others, so only an empty answer is suspect.
            is_suspect = not answered and header.transactions != 0
            return [contract.address for contract in missing] if is_suspect else []
        return [
            contract.address
            for contract in missing
            # Contract and topic together match by chance less often than the contract alone.
            if bloom.may_hold_any(header.bloom, contract.address, contract.topics)
        ]

    async def missing_logs(
        self, node: Node, header: Header, suspects: Sequence[Address], *, has_logs: bool
    ) -> list[NodeLog] | None:
        """The suspects' logs that the node left out.

        `has_logs`: the node has answered with logs of other contracts in this block, so it has
        indexed the block. A saturated bloom then proves nothing, and some nodes need seconds for
        the receipts of a full block.

        Returns None if other nodes are usable, and neither the block's hash nor one of them has
        confirmed an empty answer yet: the caller reads the block again later.
        """
        if not suspects:
            return []
        logs = await node.logs_of_block(header.hash, *suspects)
        missing = _without_logs(suspects, logs)
        is_proved = False
        if missing and not (has_logs and bloom.is_saturated(header.bloom)):
            shown, is_proved = await node.proven_logs(header.hash, *missing)
            logs += shown
            missing = _without_logs(missing, logs)
        result = "found" if logs else "empty"
        if missing and not is_proved and not node.is_alone:
            others = await self._second_opinion(node, header, missing)
            if others is None:
                return None
            if others:
                node.report_contradiction(LOGS)
                logs += others
                result = "found"
        self._unconfirmed = None
        telemetry.LOG_COMPLETENESS.labels(result).inc()
        return logs

    async def check_range(
        self,
        node: Node,
        headers: Sequence[Header],
        logs_of: Mapping[Hash32, Sequence[NodeLog]],
        contracts: Sequence[IndexedContract],
    ) -> list[NodeLog] | None:
        """The logs that a node's answer about settled blocks lacks, by the blooms of all blocks.

        `headers` are those of every block of the range; `logs_of` holds the answer by block. The
        receipts of a doubted block decide, proved by its hash. Returns None if the answer has a log
        that the proof excludes: the caller reads the range again. Raises NodeUnavailable.
        """
        self.learn(headers, logs_of)
        doubts = await self._doubts(headers, logs_of, contracts)
        blocks = [*doubts.doubted, *(() if logs_of else doubts.probes())]
        if not blocks:
            return []
        limit = asyncio.Semaphore(_BLOCKS_AT_ONCE)

        async def check(header: Header) -> list[NodeLog] | None:
            async with limit:
                shown = await read_block_logs(node, header, contracts)
            own = {entry["logIndex"] for entry in logs_of.get(header.hash, ())}
            if shown.is_proved and not own <= {entry["logIndex"] for entry in shown.logs}:
                return None
            return [entry for entry in shown.logs if entry["logIndex"] not in own]

        missing: list[NodeLog] = []
        for block_logs in await asyncio.gather(*map(check, blocks)):
            if block_logs is None:
                node.report_contradiction(LOGS)
                return None
            telemetry.LOG_COMPLETENESS.labels("found" if block_logs else "empty").inc()
            missing += block_logs
        if missing:
            log.warning(
                "indexer.logs_omitted",
                first=headers[0].number,
                last=headers[-1].number,
                logs=len(missing),
            )
            node.report_contradiction(LOGS)
        return missing

    async def _doubts(
        self,
        headers: Sequence[Header],
        logs_of: Mapping[Hash32, Sequence[NodeLog]],
        contracts: Sequence[IndexedContract],
    ) -> RangeDoubts:
        doubted, undecided = [], []
        for position, header in enumerate(headers):
            verdict = is_doubted(header, contracts, logs_of.get(header.hash, ()))
            if verdict:
                doubted.append(header)
            elif verdict is None and not (self._fills_blooms and not any(header.bloom)):
                undecided.append(header)
            if position % _HEADERS_PER_SLICE == _HEADERS_PER_SLICE - 1:
                await asyncio.sleep(0)
        return RangeDoubts(doubted, undecided)

    async def _second_opinion(
        self, node: Node, header: Header, contracts: Sequence[Address]
    ) -> list[NodeLog] | None:
        """The contracts' logs at the first other node that has the block.

        Returns None while no other node has the block, and an empty list once that has lasted for
        the patience.
        """
        for other in node.others():
            try:
                logs = await other.logs_of_block(header.hash, *contracts)
            except NodeUnavailable:
                continue  # This node lacks the block, or does not answer.
            return [entry for entry in logs if fits_block(entry, header)]
        now = self._clock()
        if self._unconfirmed is None or self._unconfirmed[0] != header.hash:
            self._unconfirmed = (header.hash, now)
        return None if now - self._unconfirmed[1] < self._patience_seconds else []


def _without_logs(contracts: Sequence[Address], logs: Iterable[NodeLog]) -> list[Address]:
    answered = _addresses(logs)
    return [contract for contract in contracts if contract not in answered]


def _addresses(logs: Iterable[NodeLog]) -> set[Address]:
    return {address_of(text) for text in {entry["address"] for entry in logs}}

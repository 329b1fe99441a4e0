"""Checks that a node left out no logs of a block: by the bloom, the block's hash, its receipts,
and a second node.

A node that has not indexed a block yet may answer `eth_getLogs` with an empty list. The block's
bloom tells which contracts may have logged; a contract without logs is then asked for again. If
every answer of the node is empty, a second node must agree. Some chains leave all blooms zero:
there a bloom proves nothing, and each block with transactions is asked for again.
"""

from collections.abc import Iterable, Mapping, Sequence

from ltzd import telemetry
from ltzd.chain.node import bloom
from ltzd.chain.node.node import Header, Node
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable
from ltzd.indexer.contracts import IndexedContract, NodeLog
from ltzd.rules.indexer.disputes import SECOND_LOOK_SECONDS
from ltzd.values import Address, Hash32, address_of, hash_of

LOGS = "logs"
"""The kind of a contradiction about a block's logs."""


class LogChecks:
    """Remembers whether the chain fills its blooms, and which answers await a second node."""

    def __init__(
        self, patience_seconds: float = SECOND_LOOK_SECONDS, clock: Clock = loop_time
    ) -> None:
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._fills_blooms: bool | None = None
        """Is None until a block has shown it."""
        self._unconfirmed: tuple[Hash32, float] | None = None
        """The block whose empty answer awaits a second node, and since when."""

    def learn(self, headers: Iterable[Header], logs_of: Mapping[Hash32, object]) -> None:
        """Learns from blocks and their logs whether this chain fills its blooms."""
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
        answered = {address_of(entry["address"]) for entry in logs}
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

        Returns None if other nodes are usable, and none of them has confirmed an empty answer yet:
        the caller reads the block again later.
        """
        if not suspects:
            return []
        logs = await node.logs_of_block(header.hash, *suspects)
        missing = _without_logs(suspects, logs)
        if missing and not (has_logs and bloom.is_saturated(header.bloom)):
            logs += await node.logs_by_receipts(header.hash, *missing)
            missing = _without_logs(missing, logs)
        result = "found" if logs else "empty"
        if missing and not node.is_alone:
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

    async def _second_opinion(
        self, node: Node, header: Header, contracts: Sequence[Address]
    ) -> list[NodeLog] | None:
        """The contracts' logs at the first other node that has the block.

        Returns None if no other node has it so far, and an empty list once that has lasted.
        """
        for other in node.others():
            try:
                logs = await other.logs_of_block(header.hash, *contracts)
            except NodeUnavailable:
                continue  # This node lacks the block, or does not answer.
            return [entry for entry in logs if _belongs_to(entry, header)]
        now = self._clock()
        if self._unconfirmed is None or self._unconfirmed[0] != header.hash:
            self._unconfirmed = (header.hash, now)
        return None if now - self._unconfirmed[1] < self._patience_seconds else []


def _without_logs(contracts: Sequence[Address], logs: Iterable[NodeLog]) -> list[Address]:
    answered = {address_of(entry["address"]) for entry in logs}
    return [contract for contract in contracts if contract not in answered]


def _belongs_to(entry: NodeLog, header: Header) -> bool:
    """Whether the log may be of this block: a node could answer with logs of another one."""
    try:
        values = [address_of(entry["address"]), *map(hash_of, entry["topics"])]
        is_of_block = hash_of(entry["blockHash"]) == header.hash
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return is_of_block and (not any(header.bloom) or bloom.may_hold(header.bloom, *values))

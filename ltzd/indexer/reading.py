"""Reads blocks and the logs of the indexed contracts from a node.

A `BlockRange` is a run of consecutive blocks with every fact in them, ready to be committed. Near
the head it holds all headers; far from the head only those of blocks with facts, and the last one.

A node that has not indexed a block yet may answer `eth_getLogs` with an empty list. Near the head
`log_checks` therefore checks an empty answer. While other nodes are usable, `log_witnesses`
compares the logs with theirs.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

import msgspec
import structlog

from ltzd.chain.node.answers.typed import Header, is_too_large, quantity
from ltzd.chain.node.node import Node
from ltzd.chain.node.refusals import RefusalKind
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.second_opinions import answered_in_time
from ltzd.errors import NodeUnavailable
from ltzd.indexer.block_times import check_block_times
from ltzd.indexer.contracts import Fact, FactBatch, IndexedContract, NodeLog
from ltzd.indexer.log_checks import LogChecks
from ltzd.indexer.log_witnesses import ConfirmedLogs, LogQuestion, LogWitnesses
from ltzd.indexer.slices import LOGS_PER_SLICE, slices
from ltzd.store.indexer.chains import BlockRow
from ltzd.values import Address, Hash32, address_of, hash_of

log = structlog.get_logger()

Contracts = Sequence[IndexedContract]

_MOST_PARTS = 32
"""The most requests to a second node about one range."""
_HEADERS_PER_BATCH = 200
"""Headers that are read, and decoded, before other tasks of this process run."""


class BlockRange(msgspec.Struct, frozen=True):
    """`facts` holds each contract's facts in the order of the chain.

    `parent_hash` is the first block's, or None if only logs were read.
    """

    parent_hash: Hash32 | None
    blocks: Sequence[BlockRow]
    facts: Sequence[tuple[IndexedContract, Sequence[Fact]]]
    batches: Sequence[tuple[IndexedContract, FactBatch]] = ()
    """Facts that are rows already, in the order of the chain."""

    @property
    def last(self) -> tuple[int, Hash32]:
        """Number and hash of the last block."""
        return self.blocks[-1].number, self.blocks[-1].hash

    def fact_counts(self) -> Counter[str]:
        """By kind."""
        counts = Counter(fact.kind for _, facts in self.facts for fact in facts)
        for contract, batch in self.batches:
            assert contract.bulk is not None
            counts[contract.bulk.kind] += batch.count
        return counts


class BlockReader:
    """Reads ranges of blocks with the contracts' facts; each range has been checked."""

    def __init__(self, contracts: Contracts, checks: LogChecks, witnesses: LogWitnesses) -> None:
        self._contracts = contracts
        self._checks = checks
        self._witnesses = witnesses

    async def read_head(self, node: Node, first: int, last: int) -> BlockRange | None:
        """Read the blocks first…last with all their headers.

        The range ends early if the node has fewer blocks. Returns None if the node's answers do not
        fit each other, which happens while the chain changes: the caller asks again.
        """
        last = min(last, first + node.range_blocks - 1)
        while True:
            try:
                headers, logs = await node.headers_and_logs(
                    first, last, *addresses(self._contracts)
                )
                break
            except RpcError as error:
                if first == last:
                    logs, header = await logs_by_receipts(node, self._contracts, first, error)
                    headers = [header]
                    break
                last = shortened(node, first, last, error)
        return await self.checked(node, headers, logs, first)

    async def checked(
        self,
        node: Node,
        headers: Sequence[Header | None],
        logs: list[NodeLog],
        first: int,
    ) -> BlockRange | None:
        """As `read_head`, from headers and logs that the node has answered."""
        chain = linked(headers, first)
        if chain is None:
            return None
        logs_by_block = _group_by_block(logs)
        if not logs_by_block.keys() <= {header.hash for header in chain}:
            return None
        self._checks.learn(chain, logs_by_block)
        for position, header in enumerate(chain):
            block_logs = logs_by_block.get(header.hash, ())
            suspects = self._checks.suspects(node, header, self._contracts, block_logs)
            missing = await self._checks.missing_logs(
                node, header, suspects, has_logs=bool(block_logs)
            )
            if missing is None:
                del chain[position:]
                kept = {header.hash for header in chain}
                logs = [entry for entry in logs if hash_of(entry["blockHash"]) in kept]
                break
            logs += missing
        if not chain:
            return None
        confirmed = await self._confirmed(node, first, chain[-1], logs)
        if confirmed is None:
            return None
        if confirmed.node is not node:
            chain = await headers_up_to(confirmed.last, confirmed.node, first)
            if chain is None:
                return None
        await check_block_times(confirmed.node, chain)
        return await _block_range(chain[0].parent_hash, chain, confirmed.logs, self._contracts)

    async def read_range(self, node: Node, first: int, last: int) -> BlockRange | None:
        """Read the final blocks first…last by one `eth_getLogs`, checked by the blooms of all.

        The range has the length that this node has accepted so far, and ends earlier if the node
        refuses it as too large. Returns None if the node's answers do not fit each other. Raises
        NodeUnavailable.
        """
        logs, header, last = await _logs_up_to(node, self._contracts, first, last)
        if header is None:
            return None  # The node has not reached the last block: its logs may be cut off.
        confirmed = await self._confirmed(node, first, header, logs)
        if confirmed is None:
            return None
        chain = await headers_up_to(confirmed.last, confirmed.node, first)
        if chain is None:
            return None
        logs_by_block = _group_by_block(confirmed.logs)
        if not logs_by_block.keys() <= {header.hash for header in chain}:
            return None
        missing = await self._checks.check_range(node, chain, logs_by_block, self._contracts)
        if missing is None:
            return None
        logs = [*confirmed.logs, *missing]
        with_logs = _group_by_block(logs).keys()
        kept = [header for header in chain if header.hash in with_logs or header.number == last]
        return await _block_range(chain[0].parent_hash, kept, logs, self._contracts)

    async def _confirmed(
        self, node: Node, first: int, last: Header, logs: Iterable[NodeLog]
    ) -> ConfirmedLogs | None:
        return await confirmed_logs(node, self._contracts, first, last, logs, self._witnesses)


async def confirmed_logs(
    node: Node,
    contracts: Contracts,
    first: int,
    last: Header,
    logs: Iterable[NodeLog],
    witnesses: LogWitnesses,
    *,
    is_settled: bool = False,
) -> ConfirmedLogs | None:
    """The logs of first…last that other nodes confirm; None if nothing decides between nodes.

    With `is_settled` other nodes confirm the blocks, too.
    """

    async def read(other: Node) -> tuple[Sequence[NodeLog], Header | None]:
        if last.number - first >= _MOST_PARTS * other.range_blocks:
            return (), None  # The range would take this node too many requests.
        return await _logs_in_parts(
            other, contracts, first, last.number, witnesses.patience_seconds
        )

    question = LogQuestion(addresses(contracts), last, read, is_settled)
    return await witnesses.confirmed(node, logs, question)


async def _logs_in_parts(
    node: Node, contracts: Contracts, first: int, last: int, seconds: float
) -> tuple[list[NodeLog], Header | None]:
    """The logs of first…last in ranges that the node accepts, and the last block's header.

    Raises NodeUnavailable if a range takes the node longer than `seconds`.
    """
    logs: list[NodeLog] = []
    while True:
        answer = _logs_up_to(node, contracts, first, last)
        part, header, end = await answered_in_time(node, answer, seconds)
        logs += part
        if header is None or end == last:
            return logs, header
        first = end + 1


async def _logs_up_to(
    node: Node, contracts: Contracts, first: int, last: int
) -> tuple[list[NodeLog], Header | None, int]:
    """The logs of a range that begins at `first`, the header of its last block, and its height.

    The range ends below `last` if the node refuses it as too large.
    """
    last = min(last, first + node.range_blocks - 1)
    while True:
        try:
            return *await node.logs_up_to(first, last, *addresses(contracts)), last
        except RpcError as error:
            if first == last:
                return *await logs_by_receipts(node, contracts, first, error), last
            last = shortened(node, first, last, error)


def shortened(node: Node, first: int, last: int, error: RpcError) -> int:
    """The last block of a shorter range, after the node refused this one.

    Raises NodeUnavailable if the node lacks the blocks, or refuses the request for another reason
    than its size. A refusal without a known reason may mean the size.
    """
    if error.refusal is not None and not is_too_large(error):
        is_behind = error.refusal.kind is RefusalKind.BEHIND
        raise NodeUnavailable(
            f"eth_getLogs: {error.message}", kind="behind" if is_behind else "other"
        ) from error
    blocks = last - first + 1
    shorter = node.range_blocks if node.range_blocks < blocks else blocks // 2
    log.info("indexer.range_shortened", blocks=shorter, reason=error.message)
    return first + shorter - 1


async def logs_by_receipts(
    node: Node, contracts: Contracts, number: int, error: RpcError
) -> tuple[list[NodeLog], Header | None]:
    """The logs and the header of one block whose logs the node refuses as too many.

    Raises NodeUnavailable if the refusal has another reason.
    """
    if not is_too_large(error):
        raise NodeUnavailable(f"eth_getLogs of one block: {error.message}") from error
    header = await node.block(number)
    if header is None:
        return [], None
    return await node.logs_by_receipts(header.hash, *addresses(contracts)), header


def addresses(contracts: Contracts) -> list[Address]:
    return [contract.address for contract in contracts]


async def headers_of(node: Node, first: int, last: int) -> list[Header] | None:
    """The headers of the blocks first…last, or None if the node does not show them as a chain."""
    headers: list[Header | None] = []
    for numbers in slices(range(first, last + 1), _HEADERS_PER_BATCH):
        headers += await node.headers(numbers)
    chain = linked(headers, first)
    return chain if chain is not None and len(chain) == last + 1 - first else None


async def headers_up_to(last: Header, node: Node, first: int) -> list[Header] | None:
    """As `headers_of`, and None if the node shows another last block, or another time of it."""
    chain = await headers_of(node, first, last.number)
    if chain is None or (chain[-1].hash, chain[-1].timestamp) != (last.hash, last.timestamp):
        return None
    return chain


def linked(headers: Sequence[Header | None], first: int) -> list[Header] | None:
    """The headers up to the first that the node lacks; None if they are not one chain."""
    chain: list[Header] = []
    for offset, header in enumerate(headers):
        if header is None:
            break
        if header.number != first + offset or (chain and header.parent_hash != chain[-1].hash):
            return None
        chain.append(header)
    return chain or None


def _group_by_block(logs: Iterable[NodeLog]) -> dict[Hash32, list[NodeLog]]:
    by_text: defaultdict[str, list[NodeLog]] = defaultdict(list)
    for entry in logs:
        by_text[entry["blockHash"]].append(entry)
    grouped: dict[Hash32, list[NodeLog]] = {}
    for text, entries in by_text.items():
        grouped.setdefault(hash_of(text), []).extend(entries)
    return grouped


async def _block_range(
    parent_hash: Hash32 | None,
    headers: Sequence[Header],
    logs: Iterable[NodeLog],
    contracts: Contracts,
) -> BlockRange:
    """Raises NodeUnavailable for a log that is not of one of these blocks."""
    logs = list(logs)
    check_heights(logs, headers)
    by_contract = _group_by_contract(logs, contracts)
    return BlockRange(
        parent_hash,
        [
            BlockRow(header.number, header.hash, header.parent_hash, header.timestamp)
            for header in headers
        ],
        [
            (contract, await decode_all(contract, by_contract[contract.address]))
            for contract in contracts
        ],
    )


def check_heights(logs: Iterable[NodeLog], headers: Iterable[Header]) -> None:
    """Raises NodeUnavailable for a log of another block, or at another height than its block.

    A fact at a lower height than its block's would outlive the reorg that undoes the block.
    """
    heights = {header.hash: header.number for header in headers}
    for block_hash, number in {(entry["blockHash"], entry["blockNumber"]) for entry in logs}:
        if heights.get(hash_of(block_hash)) != quantity(number):
            raise NodeUnavailable("The node's log is malformed", kind="malformed")


def joined(ranges: Sequence[BlockRange]) -> BlockRange:
    """One range of several that follow each other."""
    if len(ranges) == 1:
        return ranges[0]
    facts: dict[Address, tuple[IndexedContract, list[Fact]]] = {}
    for each in ranges:
        for contract, its_facts in each.facts:
            facts.setdefault(contract.address, (contract, []))[1].extend(its_facts)
    return BlockRange(
        ranges[0].parent_hash,
        [block for each in ranges for block in each.blocks],
        list(facts.values()),
        [batch for each in ranges for batch in each.batches],
    )


def _group_by_contract(
    logs: Iterable[NodeLog], contracts: Contracts
) -> Mapping[Address, list[NodeLog]]:
    """Ignore logs of contracts that the node was not asked for."""
    by_text: dict[str, list[NodeLog]] = defaultdict(list)
    for entry in logs:
        by_text[entry["address"]].append(entry)
    grouped: dict[Address, list[NodeLog]] = {address: [] for address in addresses(contracts)}
    for text, entries in by_text.items():
        grouped.get(address_of(text), []).extend(entries)
    return grouped


async def decode_all(contract: IndexedContract, logs: Iterable[NodeLog]) -> list[Fact]:
    """Return each fact once, in the order of the chain: a node may return a log twice."""
    facts: dict[tuple[int, Hash32, int], Fact] = {}
    for entries in slices(logs, LOGS_PER_SLICE):
        facts.update((fact.position.order, fact) for fact in _decoded(contract, entries))
        await asyncio.sleep(0)
    return [fact for _, fact in sorted(facts.items(), key=itemgetter(0))]


def _decoded(contract: IndexedContract, logs: Iterable[NodeLog]) -> Iterator[Fact]:
    for entry in logs:
        if entry.get("removed"):
            continue
        try:
            fact = contract.decode(entry)
        except ValueError as error:
            raise NodeUnavailable("The node's log is malformed", kind="malformed") from error
        if fact is not None:
            yield fact

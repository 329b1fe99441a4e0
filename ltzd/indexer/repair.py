"""Finds the facts that the index lacks, has wrong or has invented, and corrects them.

A range is read from a node and compared with the tables. Each block that differs is then read
again, by its receipts, and from a second node if there is one; only these answers correct facts.
Near the head only blocks that are still indexed are compared. Checking writes nothing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
import structlog

from ltzd import telemetry
from ltzd.chain.node import bloom
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
from ltzd.errors import ImpossibleFact, NodeUnavailable
from ltzd.indexer.completeness.block_logs import fits_block
from ltzd.indexer.completeness.open_blocks import blocks_that_may_hold
from ltzd.indexer.contracts import Fact, IndexedContract, NodeLog
from ltzd.indexer.log_checks import LOGS, LogChecks
from ltzd.indexer.log_witnesses import LogWitnesses
from ltzd.indexer.policy import IndexerPolicy
from ltzd.indexer.reading import BlockRange, BlockReader, addresses
from ltzd.rules.indexer.differences import Difference, compare_rows
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains, derived_rows, index_correction
from ltzd.store.indexer.chains import BlockRow, Cursor
from ltzd.store.indexer.fact_rows import FactKey, TableCorrection, read_rows
from ltzd.store.indexer.index_correction import NO_CORRECTION, IndexCorrection
from ltzd.values import Hash32, address_of

log = structlog.get_logger()

_FACTS_AT_ONCE = 1_000
"""Facts that are compared before other tasks of this process run."""
_MOST_WAITING = 200_000
"""The most corrections that may wait for others on which they depend."""


class RangeCheck(msgspec.Struct, frozen=True):
    """The blocks first…last, compared.

    `correction` removes the differences. `undecided` are the blocks of which nodes show other facts
    than the index, and nothing tells who is right: they are left as they are.
    """

    first: int
    last: int
    differences: Sequence[Difference] = ()
    correction: IndexCorrection = NO_CORRECTION
    undecided: Sequence[int] = ()

    def counts(self) -> Counter[str]:
        """The differences by their kind."""
        return Counter(difference.kind for difference in self.differences)


class _Block(msgspec.Struct, frozen=True):
    """A block as `node` shows it; `facts` by contract, in the order of the contracts.

    `is_certain`: the block's hash proves the facts, or a second node shows the same.
    """

    node: Node
    header: Header
    facts: Sequence[Sequence[Fact]]
    is_certain: bool


class IndexRepair:
    """Checks ranges of one chain's index, and corrects what a check has found."""

    def __init__(
        self,
        pool: Pool,
        chain_id: int,
        contracts: Sequence[IndexedContract],
        policy: IndexerPolicy,
    ) -> None:
        self._pool = pool
        self._chain_id = chain_id
        self._contracts = contracts
        self._policy = policy
        self._reader = BlockReader(
            contracts,
            LogChecks(policy.second_check_seconds),
            LogWitnesses(policy.second_check_seconds),
        )
        self._waiting: list[RangeCheck] = []
        """Checks whose corrections depend on corrections of other blocks."""

    def has_uncorrected(self) -> bool:
        """Whether corrections wait for others that no check has found so far."""
        return bool(self._waiting)

    async def walk(self, node: Node, first: int, last: int) -> AsyncIterator[RangeCheck]:
        """Check first…last range by range, in order, as far as blocks are indexed.

        Raises NodeUnavailable as `check` does.
        """
        while first <= last:
            check = await self.check(node, first, last)
            if check.last < first:
                return
            yield check
            first = check.last + 1

    async def check(self, node: Node, first: int, last: int) -> RangeCheck:
        """Compare blocks from `first` on, at most up to `last`; the range may end before.

        Blocks above the cursor are not compared: `last` is below `first` if none is. Raises
        NodeUnavailable if the node does not show the indexed chain, or does not answer.
        """
        cursor = await self._cursor_on(node)
        last = min(last, cursor.number)
        if first > last:
            return RangeCheck(first, last)
        block_range = await self._read(node, first, last, cursor)
        last = block_range.last[0]
        suspects = await self._differing(block_range, first, last)
        return await self.check_blocks(node, suspects, first, last)

    async def check_receipts(self, node: Node, first: int, last: int) -> RangeCheck:
        """As `check`, by the receipts of every block whose bloom does not exclude all logs.

        Slower, but it finds a log that all answers to `eth_getLogs` lack.
        """
        last = min(last, (await self._cursor_on(node)).number)
        numbers = await blocks_that_may_hold(node, self._contracts, first, last)
        return await self.check_blocks(node, numbers, first, last)

    async def check_blocks(
        self, node: Node, numbers: Iterable[int], first: int, last: int
    ) -> RangeCheck:
        """Compare single blocks of the range first…last by their receipts."""
        async with session(self._pool) as connection:
            final_number = (await chains.cursor(connection, self._chain_id)).final_number
        differences: list[Difference] = []
        blocks: list[BlockRow] = []
        corrections: list[dict[str, TableCorrection]] = [{} for _ in self._contracts]
        undecided = []
        for number in sorted(numbers):
            block = await self._block(node, number)
            if block is None:
                undecided.append(number)
                continue
            block_differences = await self._compare_block(block, corrections)
            if block_differences is None:
                undecided.append(number)
            elif block_differences:
                differences += block_differences
                header = block.header
                blocks.append(
                    BlockRow(header.number, header.hash, header.parent_hash, header.timestamp)
                )
        contracts = [
            (contract.correct, tables)
            for contract, tables in zip(self._contracts, corrections, strict=True)
            if tables
        ]
        open_heights = frozenset(block.number for block in blocks if block.number > final_number)
        return RangeCheck(
            first, last, differences, IndexCorrection(blocks, contracts, open_heights), undecided
        )

    async def correct(self, check: RangeCheck, epoch: int | None = None) -> int:
        """Correct what a check has found; returns how many facts were corrected.

        A correction that depends on a block which is not checked yet waits, and both are made
        together; `has_uncorrected` says whether any waits. Other corrections are made at once.
        `epoch` is the term's, for the holder of the indexer's lease.

        Raises LaneLost, and IndexMoved if the blocks are not indexed any more.
        """
        if not check.differences:
            return 0
        await self._forget_outdated(check)
        together = [*self._waiting, check]
        try:
            count = await self._correct_all(together, epoch)
        except ImpossibleFact:
            if self._waiting:
                with suppress(ImpossibleFact):
                    return await self._correct_all([check], epoch)
            if (
                index_correction.merge([each.correction for each in together]).count()
                > _MOST_WAITING
            ):
                raise
            self._waiting = together
            return 0
        self._waiting = []
        return count

    async def _forget_outdated(self, check: RangeCheck) -> None:
        """End the waiting of corrections that a check has found again, or that a reorg undid."""
        heights = check.correction.heights()
        waiting = [each for each in self._waiting if not each.correction.heights() <= heights]
        if waiting:
            async with session(self._pool) as connection:
                waiting = [
                    each
                    for each in waiting
                    if await index_correction.is_indexed_still(connection, each.correction)
                ]
        self._waiting = waiting

    async def _correct_all(self, checks: Sequence[RangeCheck], epoch: int | None) -> int:
        merged = index_correction.merge([each.correction for each in checks])
        async with transaction(self._pool) as connection:
            await index_correction.apply(connection, self._chain_id, merged, epoch=epoch)
        for each in checks:
            counts = each.counts()
            for kind, count in counts.items():
                telemetry.FACTS_MENDED.labels(kind).inc(count)
            log.warning("index.mended", from_block=each.first, to_block=each.last, **counts)
        return merged.count()

    async def check_derived(
        self, *, corrects: bool = False, epoch: int | None = None
    ) -> Counter[str]:
        """Count the rows that do not follow from the facts, by table; `corrects` rebuilds them.

        Takes seconds for millions of facts, in which a repair delays the indexer. Raises
        LaneLost, and ImpossibleFact if the facts themselves contradict each other.
        """
        counts: Counter[str] = Counter()
        for table in (table for contract in self._contracts for table in contract.derived):
            async with transaction(self._pool) as connection:
                if corrects:
                    await chains.lock_cursor(connection, self._chain_id, epoch)
                keys = await derived_rows.search(connection, table)
                if keys and corrects:
                    await table.rebuild(connection, keys)
            if keys:
                counts[table.name] = len(keys)
                if corrects:
                    telemetry.FACTS_MENDED.labels("derived").inc(len(keys))
                    log.warning("index.rebuilt_rows", table=table.name, rows=len(keys))
        return counts

    async def _cursor_on(self, node: Node) -> Cursor:
        """The cursor, if the node's chain has its block."""
        async with session(self._pool) as connection:
            cursor = await chains.cursor(connection, self._chain_id)
        header = await node.block(cursor.number)
        if header is None or header.hash != cursor.hash:
            raise NodeUnavailable(
                f"The node does not show the indexed block {cursor.number}", kind="behind"
            )
        return cursor

    async def _read(self, node: Node, first: int, last: int, cursor: Cursor) -> BlockRange:
        if first <= cursor.final_number:
            last = min(last, cursor.final_number, first + self._policy.range_blocks - 1)
            block_range = await self._reader.read_range(node, first, last)
        else:
            last = min(last, first + self._policy.head_blocks - 1)
            block_range = await self._reader.read_head(node, first, last)
        if block_range is None:
            raise NodeUnavailable("The node's answers do not fit each other", kind="malformed")
        return block_range

    async def _differing(self, block_range: BlockRange, first: int, last: int) -> set[int]:
        """The heights at which the tables differ from what was read."""
        numbers: set[int] = set()
        for contract, facts in block_range.facts:
            for table in contract.fact_tables:
                kept = [fact for fact in facts if isinstance(fact, table.kinds)]
                for part, begin, end in _parts(kept, first, last):
                    on_chain = {fact.position.order: table.row_of(fact) for fact in part}
                    async with session(self._pool) as connection:
                        indexed = await read_rows(connection, table, begin, end)
                    numbers.update(number for number, _, _ in compare_rows(on_chain, indexed))
        return numbers

    async def _compare_block(
        self, block: _Block, corrections: Sequence[dict[str, TableCorrection]]
    ) -> list[Difference] | None:
        """Add the corrections of one block to the corrections of each contract.

        Returns None, and adds nothing, if the block's bloom contradicts a single node, or other
        nodes name other transactions.
        """
        differences = []
        number = block.header.number
        changes: list[tuple[dict[str, TableCorrection], str, TableCorrection]] = []
        for contract, facts, tables in zip(self._contracts, block.facts, corrections, strict=True):
            for table in contract.fact_tables:
                by_key: dict[FactKey, Fact] = {
                    fact.position.order: fact for fact in facts if isinstance(fact, table.kinds)
                }
                on_chain = {key: table.row_of(fact) for key, fact in by_key.items()}
                async with session(self._pool) as connection:
                    indexed = await read_rows(connection, table, number, number)
                kinds = compare_rows(on_chain, indexed)
                if not kinds:
                    continue
                if _may_hide(block, contract, facts):
                    return None
                rows: Mapping[FactKey, Sequence[object]] = {**indexed, **on_chain}
                for key, kind in sorted(kinds.items()):
                    transaction_hash = rows[key][3]
                    assert isinstance(transaction_hash, bytes)
                    differences.append(
                        Difference(kind, table.name, number, key[2], transaction_hash)
                    )
                before = tables.get(table.name, TableCorrection())
                correction = TableCorrection(
                    [*before.remove, *(key for key, kind in kinds.items() if kind == "foreign")],
                    [*before.insert, *(by_key[key] for key in kinds if key in by_key)],
                )
                changes.append((tables, table.name, correction))
        if changes and await self._are_denied(block):
            return None
        for tables, name, correction in changes:
            tables[name] = correction
        return differences

    async def _are_denied(self, block: _Block) -> bool:
        """Whether another node names other transactions for the logs, and none names the same.

        The block's hash proves its logs, but not which transactions wrote them.
        """
        own = _transactions(fact for facts in block.facts for fact in facts)
        is_denied = False
        for other in block.node.others(block.header.number):
            try:
                logs = await other.logs_of_block(block.header.hash, *addresses(self._contracts))
                facts = [_facts_of(contract, logs) for contract in self._contracts]
            except NodeUnavailable:
                continue
            shown = _transactions(fact for each in facts for fact in each)
            if own.items() <= shown.items():
                return False
            is_denied = is_denied or any(
                own.get(index, name) != name for index, name in shown.items()
            )
        return is_denied

    async def _block(self, node: Node, number: int) -> _Block | None:
        """A block with its facts by its receipts; None if nothing tells which node is right."""
        header = await node.block(number)
        if header is None:
            raise NodeUnavailable(f"The node has no block {number}", kind="behind")
        if await _is_denied(node, header):
            return None
        contracts = addresses(self._contracts)
        logs, is_certain = await node.proven_logs(header.hash, *contracts)
        for other in [] if is_certain else node.others(number):
            try:
                shown, is_proved = await other.proven_logs(header.hash, *contracts)
            except NodeUnavailable:
                continue
            is_certain = is_proved or _keys(shown) == _keys(logs)
            if not is_certain:
                return None
            if _contents(shown) != _contents(logs):
                node.report_contradiction(LOGS)
            node, logs = other, shown
            break
        if not all(fits_block(entry, header) for entry in logs):
            return None
        facts = [_facts_of(contract, logs) for contract in self._contracts]
        return _Block(node, header, facts, is_certain)


async def _is_denied(node: Node, header: Header) -> bool:
    """Whether other nodes show another block at this height, and none of them shows this one.

    A block's hash proves its logs, but not that the block is canonical.
    """
    is_denied = False
    for other in node.others(header.number):
        try:
            shown = await other.block(header.number)
        except NodeUnavailable:
            continue
        if shown is not None and shown.hash == header.hash:
            return False
        is_denied = is_denied or shown is not None
    return is_denied


def _parts(
    facts: Sequence[Fact], first: int, last: int
) -> Iterator[tuple[Sequence[Fact], int, int]]:
    """Facts of first…last in parts of whole blocks, each with its first and last block.

    Other tasks of the process run between two parts.
    """
    begin = 0
    while len(facts) - begin > _FACTS_AT_ONCE:
        end = facts[begin + _FACTS_AT_ONCE].position.block_number
        position = begin + _FACTS_AT_ONCE
        while position < len(facts) and facts[position].position.block_number == end:
            position += 1
        yield facts[begin:position], first, end
        begin, first = position, end + 1
    if first <= last:
        yield facts[begin:], first, last


def _may_hide(block: _Block, contract: IndexedContract, facts: Sequence[Fact]) -> bool:
    """Whether the bloom contradicts a single node that shows none of a contract's facts."""
    header = block.header
    return (
        not block.is_certain
        and not facts
        and any(header.bloom)
        and bloom.may_hold_any(header.bloom, contract.address, contract.topics)
    )


def _keys(logs: Iterable[NodeLog]) -> set[tuple[str, ...]]:
    return {(*_content(entry), str(entry["transactionHash"]).lower()) for entry in logs}


def _contents(logs: Iterable[NodeLog]) -> set[tuple[str, ...]]:
    return set(map(_content, logs))


def _content(entry: NodeLog) -> tuple[str, ...]:
    """The part of a log that its block's hash proves."""
    return (
        str(entry["logIndex"]),
        str(entry["address"]).lower(),
        str(entry["data"]).lower(),
        " ".join(entry["topics"]).lower(),
    )


def _transactions(facts: Iterable[Fact]) -> dict[int, Hash32]:
    """By the log's index."""
    return {fact.position.log_index: fact.position.transaction_hash for fact in facts}


def _facts_of(contract: IndexedContract, logs: Iterable[NodeLog]) -> list[Fact]:
    try:
        facts = [
            contract.decode(entry)
            for entry in logs
            if address_of(entry["address"]) == contract.address
        ]
    except ValueError as error:
        raise NodeUnavailable("The node's log is malformed", kind="malformed") from error
    return [fact for fact in facts if fact is not None]

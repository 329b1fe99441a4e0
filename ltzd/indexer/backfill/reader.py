"""Reads one range of settled blocks and makes rows of its logs.

The usual logs become rows of binary COPY in one pass; all other logs are decoded to facts. The
logs are checked by the hashes and the blooms of all blocks of the range, and by other nodes.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from ltzd.chain.node.answers.typed import LARGEST_INDEX, Header, quantity
from ltzd.chain.node.log_entries import LogEntry, json_bytes, log_entries
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.errors import NodeUnavailable
from ltzd.indexer.block_times import check_block_times
from ltzd.indexer.contracts import Fact, IndexedContract, NodeLog
from ltzd.indexer.log_checks import LogChecks
from ltzd.indexer.log_witnesses import LogWitnesses
from ltzd.indexer.reading import (
    BlockRange,
    addresses,
    check_heights,
    confirmed_logs,
    decode_all,
    headers_of,
    headers_up_to,
    logs_by_receipts,
    shortened,
)
from ltzd.indexer.slices import slices
from ltzd.store.indexer.chains import BlockRow
from ltzd.values import Address, Hash32, address_of, hash_of

_FACT_BYTES = 600
_BLOCK_BYTES = 300
_LOGS_PER_SLICE = 1_000
"""Logs that are made rows before other tasks of this process run."""


class ReadRange(msgspec.Struct, frozen=True):
    """Blocks first…last, ready to be committed. `json_bytes` is the size of their logs as JSON."""

    first: int
    last: int
    blocks: BlockRange
    events: int
    json_bytes: int

    @property
    def count(self) -> int:
        """The number of blocks, also of blocks without facts."""
        return self.last - self.first + 1

    @property
    def held_bytes(self) -> int:
        """About the memory that the range takes."""
        batches = sum(batch.held_bytes for _, batch in self.blocks.batches)
        facts = sum(len(facts) for _, facts in self.blocks.facts)
        return batches + _FACT_BYTES * facts + _BLOCK_BYTES * len(self.blocks.blocks)


class RangeReader:
    def __init__(
        self, contracts: Sequence[IndexedContract], checks: LogChecks, witnesses: LogWitnesses
    ) -> None:
        self._contracts = contracts
        self._checks = checks
        self._witnesses = witnesses

    async def read(self, node: Node, first: int, last: int) -> ReadRange | None:
        """Read blocks from `first` on, at most up to `last`, as many as the node answers at once.

        Returns None if the node's answers do not fit each other. Raises NodeUnavailable, and Broken
        for a log that only another contract can have written.
        """
        logs, last = await self._logs(node, first, last)
        headers = await headers_of(node, first, last)
        if headers is None:
            return None
        source = node
        if not node.is_alone:
            confirmed = await confirmed_logs(
                node,
                self._contracts,
                first,
                headers[-1],
                logs,
                self._witnesses,
                is_settled=True,
            )
            if confirmed is None:
                return None
            logs, source = log_entries(confirmed.logs), confirmed.node
            if source is not node:
                headers = await headers_up_to(confirmed.last, source, first)
                if headers is None:
                    return None
        by_block = _by_block(logs, {header.hash: header for header in headers})
        if by_block is None:
            return None
        missing = await self._checks.check_range(node, headers, by_block, self._contracts)
        if missing is None:
            return None
        await check_block_times(source, headers)
        if missing:
            check_heights(missing, headers)
            for entry in log_entries(missing):
                by_block.setdefault(hash_of(entry.block_hash), []).append(entry)
        return await self._build(headers, by_block, json_bytes(logs))

    async def _logs(self, node: Node, first: int, last: int) -> tuple[list[LogEntry], int]:
        last = min(last, first + node.range_blocks - 1)
        while True:
            try:
                return await node.range_logs(first, last, *addresses(self._contracts)), last
            except RpcError as error:
                if first == last:
                    logs, _ = await logs_by_receipts(node, self._contracts, first, error)
                    return log_entries(logs), last
                last = shortened(node, first, last, error)

    async def _build(
        self, headers: Sequence[Header], by_block: Mapping[Hash32, list[LogEntry]], size: int
    ) -> ReadRange:
        rows = _RangeRows(self._contracts)
        done = 0
        for header in headers:
            if block_logs := by_block.get(header.hash):
                rows.add(header, block_logs)
                done += len(block_logs)
                if done >= _LOGS_PER_SLICE:
                    done = 0
                    await asyncio.sleep(0)
        kept = [header for header in headers if header.hash in by_block]
        if not kept or kept[-1] is not headers[-1]:
            kept.append(headers[-1])
        facts, batches = await rows.build()
        blocks = BlockRange(
            headers[0].parent_hash,
            [
                BlockRow(header.number, header.hash, header.parent_hash, header.timestamp)
                for header in kept
            ],
            facts,
            batches,
        )
        events = sum(blocks.fact_counts().values())
        return ReadRange(headers[0].number, headers[-1].number, blocks, events, size)


def _by_block(
    logs: Sequence[LogEntry], headers: Mapping[Hash32, Header]
) -> dict[Hash32, list[LogEntry]] | None:
    """The logs of each block; None if a log is of no block with one of these headers.

    Raises NodeUnavailable for a malformed log.
    """
    by_block: dict[Hash32, list[LogEntry]] = {}
    try:
        # Each text once: a range of thousands of logs repeats them.
        for text in set(map(attrgetter("address"), logs)):
            address_of(text)
        for text in set(map(attrgetter("log_index"), logs)):
            quantity(text, LARGEST_INDEX)
        for text, group in groupby(logs, attrgetter("block_hash")):
            header = headers.get(hash_of(text))
            if header is None:
                return None
            entries = list(group)
            numbers = set(map(attrgetter("block_number"), entries))
            if {int(number, 16) for number in numbers} != {header.number}:
                raise ValueError("the log's height is not its block's")
            by_block.setdefault(header.hash, []).extend(entries)
    except ValueError as error:
        raise NodeUnavailable("The node's log is malformed", kind="malformed") from error
    return by_block


class _RangeRows:
    """The rows of one range, by contract."""

    def __init__(self, contracts: Sequence[IndexedContract]) -> None:
        self._contracts = contracts
        self._by_address = {contract.address: contract for contract in contracts}
        self._texts: dict[str, Address] = {}
        self._left: defaultdict[Address, list[NodeLog]] = defaultdict(list)
        self._usual: defaultdict[Address, list[Any]] = defaultdict(list)

    def add(self, header: Header, logs: Sequence[LogEntry]) -> None:
        """Raises NodeUnavailable for a malformed log."""
        by_contract: defaultdict[Address, list[LogEntry]] = defaultdict(list)
        for text, group in groupby(logs, attrgetter("address")):
            by_contract[self._address(text)].extend(group)
        for address, entries in by_contract.items():
            contract = self._by_address.get(address)
            if contract is None:
                continue  # The node was not asked for this contract.
            left = entries
            if contract.bulk is not None:
                usual, left = contract.bulk.read(entries, header.number, header.hash.hex())
                self._usual[contract.address] += usual
            self._left[contract.address] += left

    def _address(self, text: str) -> Address:
        address = self._texts.get(text)
        if address is None:
            try:
                address = self._texts[text] = address_of(text)
            except ValueError as error:
                raise NodeUnavailable("The node's log is malformed", kind="malformed") from error
        return address

    async def build(
        self,
    ) -> tuple[list[tuple[IndexedContract, Sequence[Fact]]], list[tuple[IndexedContract, Any]]]:
        facts: list[tuple[IndexedContract, Sequence[Fact]]] = []
        batches: list[tuple[IndexedContract, Any]] = []
        for contract in self._contracts:
            facts.append((contract, await decode_all(contract, self._left[contract.address])))
            if contract.bulk is None:
                continue
            for part in slices(self._usual[contract.address], _LOGS_PER_SLICE):
                try:
                    batches.append((contract, contract.bulk.batch(part)))
                except ValueError as error:
                    raise NodeUnavailable(
                        "The node's log is malformed", kind="malformed"
                    ) from error
                await asyncio.sleep(0)
        return facts, batches

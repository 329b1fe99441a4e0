"""Ranges that are read ahead: in their order, kept when another one fails, and bounded."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.concurrency.clock import loop_time
from ltzd.errors import NodeUnavailable
from ltzd.indexer.backfill.ranges import BackfillRanges
from ltzd.indexer.backfill.reader import RangeReader
from ltzd.indexer.log_checks import LogChecks
from ltzd.indexer.log_witnesses import LogWitnesses
from ltzd.indexer.policy import BackfillPolicy
from ltzd.indexer.reading import BlockRange
from ltzd.values import ZERO_ADDRESS
from tests.support.chain.fake_node import CONTRACTS, FakeNode, transfer_log
from tests.support.chain.node_group import NodeGroup
from tests.support.rows.core import a_wallet
from tests.support.waiting import until

BLOCKS, WIDTH = 60, 5
POLICY = BackfillPolicy(first_blocks=WIDTH, least_events=1, most_events=1, linger_seconds=0.0)


class Reading:
    """A chain with a transfer in each block, and what is read ahead of it."""

    def __init__(self, policy: BackfillPolicy = POLICY) -> None:
        self.node = FakeNode()
        for number in range(BLOCKS):
            self.node.mine(logs=[transfer_log(ZERO_ADDRESS, a_wallet(1), number + 1)])
        reader = RangeReader(CONTRACTS, LogChecks(), LogWitnesses())
        self.ranges = BackfillRanges(reader, policy, WIDTH, loop_time)
        self.first_blocks: list[int] = []
        self.failing: set[int] = set()
        answer = self.node._methods["eth_getLogs"]

        def logs(where: dict[str, str]) -> object:
            first = int(where["fromBlock"], 16)
            self.first_blocks.append(first)
            if first in self.failing:
                raise NodeUnavailable("The node does not answer")
            return answer(where)

        self.node._methods["eth_getLogs"] = logs

    async def take(self, first: int) -> BlockRange:
        taken = await self.ranges.take(self.node.node, first, BLOCKS)
        assert taken is not None
        return taken


@pytest_asyncio.fixture
async def reading() -> AsyncIterator[Reading]:
    reading = Reading()
    yield reading
    await reading.ranges.forget()


async def test_all_blocks_are_handed_out_once_and_in_order(reading: Reading) -> None:
    first, parent, heights = 1, reading.node.blocks[0].hash, []
    while first <= BLOCKS:
        taken = await reading.take(first)
        assert taken.parent_hash == parent
        heights += [block.number for block in taken.blocks]
        first, parent = taken.last[0] + 1, taken.last[1]
    assert heights == list(range(1, BLOCKS + 1))
    assert len(reading.first_blocks) == BLOCKS // WIDTH


async def test_a_failed_range_is_read_again_and_those_behind_it_stay(reading: Reading) -> None:
    reading.failing = {1 + WIDTH}
    taken = await reading.take(1)
    assert taken.last[0] == WIDTH

    async def has_read_behind() -> bool:
        return len(reading.first_blocks) > 2

    await until(has_read_behind)
    with pytest.raises(NodeUnavailable):
        await reading.take(1 + WIDTH)
    reading.failing = set()
    behind = [first for first in reading.first_blocks if first > 1 + WIDTH]
    assert (await reading.take(1 + WIDTH)).last[0] == 2 * WIDTH
    assert (await reading.take(1 + 2 * WIDTH)).last[0] == 3 * WIDTH
    assert all(reading.first_blocks.count(first) == 1 for first in behind)


async def test_another_cursor_drops_what_was_read_before_it(reading: Reading) -> None:
    await reading.take(1)
    taken = await reading.take(1 + 3 * WIDTH)
    assert taken.blocks[0].number == 1 + 3 * WIDTH


async def test_no_range_is_begun_while_too_many_bytes_are_held() -> None:
    reading = Reading(replace(POLICY, held_bytes=1))
    await reading.take(1)
    await reading.take(1 + WIDTH)
    assert len(reading.first_blocks) <= 3
    await reading.ranges.forget()


async def test_ranges_of_nodes_on_different_branches_are_not_joined() -> None:
    nodes = NodeGroup.of(2, blocks=2 * WIDTH)
    for node in nodes.nodes:
        node.mine(BLOCKS - 2 * WIDTH)
    reader = RangeReader(CONTRACTS, LogChecks(), LogWitnesses(patience_seconds=60.0))
    policy = replace(POLICY, least_events=20, most_events=20, linger_seconds=30.0)
    ranges = BackfillRanges(reader, policy, WIDTH, loop_time)
    taken = await ranges.take(nodes.node.pinned(), 1, BLOCKS)
    await ranges.forget()

    branches = [{block.hash for block in node.blocks} for node in nodes.nodes]
    hashes = {block.hash for block in taken.blocks} if taken else set()
    assert len(hashes) > 1
    assert any(hashes <= branch for branch in branches)


async def test_small_ranges_are_joined_to_one_commit() -> None:
    reading = Reading(replace(POLICY, least_events=20, most_events=20, linger_seconds=30.0))
    taken = await reading.take(1)
    assert taken.fact_counts()["transfer"] == 20
    await reading.ranges.forget()


async def test_a_caller_that_is_cancelled_while_reading_ends_stays_cancelled(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower would otherwise go on, and its process would never end."""
    is_reading, is_ending, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def ends_slowly(*_: object) -> None:
        is_reading.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_ending.set()
            await may_end.wait()

    monkeypatch.setattr(reading.ranges._reader, "read", ends_slowly)
    taking = asyncio.create_task(reading.take(1))
    await is_reading.wait()
    taking.cancel()
    await asyncio.wait({taking})
    forgetting = asyncio.create_task(reading.ranges.forget())
    await is_ending.wait()
    forgetting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await forgetting
    may_end.set()

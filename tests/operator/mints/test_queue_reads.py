"""A mint lane reads its queue when something may be in it, and not more often."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from ltzd.operator import publisher
from ltzd.store.operator import rewards, transactions
from tests.support.chain.mint_world import POLICY, World

LONG = 600.0
"""Longer than any test runs, in seconds."""
QUIET = replace(POLICY, poll_seconds=LONG, repeat_seconds=LONG, replace_after_seconds=LONG)
"""Nothing but the tests announces work, apart from new blocks, of which there are none.

A round of the monitor between a signature and its publication announces bytes that are due.
"""


@pytest.fixture(autouse=True)
def _no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only announced work has the queue read, and what the last reading left behind."""
    monkeypatch.setattr(publisher, "POLL_SECONDS", LONG)


async def test_once_the_queue_is_empty_its_lane_waits_for_an_announcement(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = rewards.queued

    async def counted(*arguments: Any) -> Sequence[rewards.QueuedReward]:
        queued = await read(*arguments)
        reads.append(len(queued))
        return queued

    monkeypatch.setattr(rewards, "queued", counted)
    async with world.serving(QUIET):
        await world.queue(2)
        await world.settled("published")
        await world.some_polls()
        before = len(reads)
        await world.queue(3)
        await world.settled("published", "published")
        await world.some_polls()
    assert reads[before:] == [3]


async def test_a_reward_that_is_announced_while_others_are_signed_is_signed_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = transactions.store_signed
    late = [1]

    async def store_late(*arguments: Any) -> int:
        if late:
            await world.queue(late.pop())
        return await store(*arguments)

    monkeypatch.setattr(transactions, "store_signed", store_late)
    async with world.serving(QUIET):
        await world.queue(1)
        await world.settled("published", "published")


async def test_rewards_that_a_mint_leaves_behind_are_signed_next(world: World) -> None:
    """A reward whose mint was cancelled once goes with no reward that was never in one."""
    ids = await world.queue(2)
    await world.observer.execute("UPDATE rewards SET cancelled_mints = 1 WHERE id = $1", ids[0])
    async with world.serving(QUIET):
        await world.settled("published", "published")

"""Blocks with mints go away: every read follows, and each reward comes back exactly once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest_asyncio

from tests.support.instances.books import (
    LTZ,
    all_minted,
    assert_books_agree,
    balances_on_chain,
    mints_on_chain,
    total_supply,
)
from tests.support.instances.instance import Answer, Instance
from tests.support.waiting import until

FOLLOWED_SECONDS = 3.0
SHRUNK_SECONDS = 5.0
BACK_SECONDS = 20.0


@pytest_asyncio.fixture
async def by_hand(instance: Instance) -> AsyncIterator[Instance]:
    """The shared instance while its chain mines only when told."""
    await all_minted(instance)
    await instance.rpc("evm_setAutomine", False)
    yield instance
    await instance.rpc("evm_setAutomine", True)
    async with ticking(instance):
        await all_minted(instance)


@asynccontextmanager
async def ticking(instance: Instance) -> AsyncIterator[None]:
    """Blocks come, ten a second."""

    async def tick() -> None:
        while True:
            await instance.rpc("evm_mine")
            await asyncio.sleep(0.1)

    task = asyncio.create_task(tick())
    try:
        yield
    finally:
        task.cancel()


async def a_mined_reward(instance: Instance) -> Answer:
    """Posted, and its mint in the newest block."""
    answer = await instance.post_event(f"{uuid4().hex}@shop.example")
    assert answer.status == 200, answer.body
    await instance.rpc("evm_mine")
    await instance.minted(answer.event_id)
    return answer


async def indexed(instance: Instance, answer: Answer) -> int:
    wallet = bytes.fromhex(answer.body["walletAddress"][2:])
    amount = await instance.ask("SELECT amount FROM balances WHERE wallet = $1", wallet)
    return int(amount or 0)


async def the_head_is_indexed(instance: Instance) -> None:
    """The block that is newest now is among those that the index holds for canonical."""
    head = bytes.fromhex((await instance.rpc.block())["hash"][2:])
    await until(
        lambda: instance.ask("SELECT count(*) FROM blocks WHERE hash = $1", head), FOLLOWED_SECONDS
    )


async def reads_follow(instance: Instance, answer: Answer, seconds: float) -> None:
    """The orphaned reward is nowhere to be read any more."""
    wallet = answer.body["walletAddress"].lower()
    assert await balances_on_chain(instance, [wallet]) == {wallet: 0}, "the reorg kept the mint"

    async def gone() -> bool:
        event = await instance.event(answer.event_id)
        return event["blockNumber"] is None and await indexed(instance, answer) == 0

    await until(gone, seconds)
    event = await instance.event(answer.event_id)
    assert (event["status"], event["transactionHash"]) == ("published", answer.hash)


async def comes_back_once(instance: Instance, answer: Answer) -> None:
    """While blocks come, the reward is on the new chain, and all the books agree."""
    async with ticking(instance):
        await all_minted(instance, BACK_SECONDS)
    event = await instance.minted(answer.event_id)
    receipt = await instance.rpc.receipt(event["transactionHash"])
    assert receipt["blockNumber"] == hex(event["blockNumber"])
    assert await indexed(instance, answer) == 100 * LTZ
    await assert_books_agree(instance, [answer])


async def test_a_reward_that_a_reorg_drops_is_minted_again_exactly_once(by_hand: Instance) -> None:
    answer = await a_mined_reward(by_hand)
    await by_hand.rpc("evm_mine")
    await by_hand.rpc("evm_mine")
    head = await by_hand.rpc.number()

    await by_hand.rpc("anvil_reorg", 3, [])

    assert await by_hand.rpc.number() == head
    await reads_follow(by_hand, answer, FOLLOWED_SECONDS)
    await comes_back_once(by_hand, answer)


async def test_a_reward_is_back_within_twenty_seconds_on_a_chain_with_block_times(
    instance: Instance,
) -> None:
    """Nobody ticks by hand here: the chain mines a block each second."""
    await instance.rpc("evm_setAutomine", False)
    await instance.rpc("evm_setIntervalMining", 1)
    try:
        answer = await instance.post_event(f"{uuid4().hex}@shop.example")
        await instance.minted(answer.event_id)
        await instance.rpc("anvil_reorg", 1, [])
        await the_head_is_indexed(instance)
        await all_minted(instance, BACK_SECONDS)
        await assert_books_agree(instance, [answer])
    finally:
        await instance.rpc("evm_setIntervalMining", 0)
        await instance.rpc("evm_setAutomine", True)


async def test_a_head_that_shrinks_for_good_is_a_reorg(by_hand: Instance) -> None:
    answer = await a_mined_reward(by_hand)

    await by_hand.rpc("anvil_rollback", 1)

    await reads_follow(by_hand, answer, SHRUNK_SECONDS)
    await comes_back_once(by_hand, answer)


async def test_a_chain_put_back_to_a_snapshot_is_followed(by_hand: Instance) -> None:
    snapshot = await by_hand.rpc("evm_snapshot")
    answer = await a_mined_reward(by_hand)
    await by_hand.rpc("evm_mine")

    assert await by_hand.rpc("evm_revert", snapshot) is True

    await reads_follow(by_hand, answer, SHRUNK_SECONDS)
    await comes_back_once(by_hand, answer)


async def test_a_reorg_while_ltzd_is_dead_is_found_at_its_next_start(by_hand: Instance) -> None:
    answer = await a_mined_reward(by_hand)
    await by_hand.kill9()
    await by_hand.rpc("anvil_reorg", 1, [])
    await by_hand.rpc("evm_mine")

    await by_hand.start_again()

    await reads_follow(by_hand, answer, SHRUNK_SECONDS)
    await comes_back_once(by_hand, answer)


async def test_a_mint_that_a_reorg_moves_to_another_block_is_not_sent_again(
    by_hand: Instance,
) -> None:
    answer = await a_mined_reward(by_hand)
    await by_hand.rpc("evm_mine")
    raw = await by_hand.ask("SELECT raw FROM attempts ORDER BY created_at DESC LIMIT 1")

    await by_hand.rpc("anvil_reorg", 2, [["0x" + raw.hex(), 1]])
    await the_head_is_indexed(by_hand)

    event = await by_hand.event(answer.event_id)
    head = await by_hand.rpc.number()
    assert (event["transactionHash"], event["blockNumber"]) == (answer.hash, head)
    await assert_books_agree(by_hand, [answer])


async def test_many_mints_that_a_reorg_drops_all_come_back_once(by_hand: Instance) -> None:
    answers = [await a_mined_reward(by_hand) for _ in range(8)]

    await by_hand.rpc("anvil_reorg", 6, [])
    await the_head_is_indexed(by_hand)
    balances = [await indexed(by_hand, answer) for answer in answers]

    assert balances == [100 * LTZ] * 2 + [0] * 6
    async with ticking(by_hand):
        await all_minted(by_hand, BACK_SECONDS)
    await assert_books_agree(by_hand, answers)


async def test_a_reorg_that_leaves_the_mint_alone_mints_nothing(by_hand: Instance) -> None:
    answer = await a_mined_reward(by_hand)
    for _ in range(3):
        await by_hand.rpc("evm_mine")
    before = (await by_hand.event(answer.event_id), await total_supply(by_hand))

    await by_hand.rpc("anvil_reorg", 3, [])
    await the_head_is_indexed(by_hand)
    assert (await by_hand.event(answer.event_id), await total_supply(by_hand)) == before


async def test_on_a_dev_chain_even_a_reorg_below_finality_is_followed(by_hand: Instance) -> None:
    answer = await a_mined_reward(by_hand)
    await by_hand.rpc("anvil_mine", 70)

    async def is_final() -> bool:
        return bool((await by_hand.event(answer.event_id))["status"] == "final")

    await until(is_final)
    await by_hand.rpc("anvil_reorg", 71, [])

    await reads_follow(by_hand, answer, FOLLOWED_SECONDS)
    assert answer.event_id not in {str(mint.reward) for mint in await mints_on_chain(by_hand)}
    await comes_back_once(by_hand, answer)

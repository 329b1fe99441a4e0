"""Reorgs of blocks with mints: reads follow the chain, and each reward is minted again once."""

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
async def mining_on_request(instance: Instance) -> AsyncIterator[Instance]:
    """The shared instance while its chain mines only on request."""
    await all_minted(instance)
    await instance.rpc("evm_setAutomine", False)
    yield instance
    await instance.rpc("evm_setAutomine", True)
    async with ticking(instance):
        await all_minted(instance)


@asynccontextmanager
async def ticking(instance: Instance) -> AsyncIterator[None]:
    """Mines ten blocks a second."""

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
    """Posts an event and mines its mint."""
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
    """Waits until the index has the current head as canonical."""
    head = bytes.fromhex((await instance.rpc.block())["hash"][2:])
    await until(
        lambda: instance.ask("SELECT count(*) FROM blocks WHERE hash = $1", head), FOLLOWED_SECONDS
    )


async def assert_reads_follow(instance: Instance, answer: Answer, seconds: float) -> None:
    """Checks that no read shows the orphaned reward."""
    wallet = answer.body["walletAddress"].lower()
    assert await balances_on_chain(instance, [wallet]) == {wallet: 0}, "the reorg kept the mint"

    async def is_unconfirmed() -> bool:
        event = await instance.event(answer.event_id)
        return event["blockNumber"] is None and await indexed(instance, answer) == 0

    await until(is_unconfirmed, seconds)
    event = await instance.event(answer.event_id)
    assert (event["status"], event["transactionHash"]) == ("published", answer.hash)


async def assert_minted_again_once(instance: Instance, answer: Answer) -> None:
    """Checks that the reward is minted on the new chain and that all balances agree."""
    async with ticking(instance):
        await all_minted(instance, BACK_SECONDS)
    event = await instance.minted(answer.event_id)
    receipt = await instance.rpc.receipt(event["transactionHash"])
    assert receipt["blockNumber"] == hex(event["blockNumber"])
    assert await indexed(instance, answer) == 100 * LTZ
    await assert_books_agree(instance, [answer])


async def test_a_reward_dropped_by_a_reorg_is_minted_again_exactly_once(
    mining_on_request: Instance,
) -> None:
    answer = await a_mined_reward(mining_on_request)
    await mining_on_request.rpc("evm_mine")
    await mining_on_request.rpc("evm_mine")
    head = await mining_on_request.rpc.number()

    await mining_on_request.rpc("anvil_reorg", 3, [])

    assert await mining_on_request.rpc.number() == head
    await assert_reads_follow(mining_on_request, answer, FOLLOWED_SECONDS)
    await assert_minted_again_once(mining_on_request, answer)


async def test_on_a_chain_with_block_times_a_dropped_reward_is_minted_again_within_twenty_seconds(
    instance: Instance,
) -> None:
    """The chain mines a block every second in this test."""
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


async def test_a_head_that_stays_lower_is_a_reorg(mining_on_request: Instance) -> None:
    answer = await a_mined_reward(mining_on_request)

    await mining_on_request.rpc("anvil_rollback", 1)

    await assert_reads_follow(mining_on_request, answer, SHRUNK_SECONDS)
    await assert_minted_again_once(mining_on_request, answer)


async def test_a_chain_reverted_to_a_snapshot_is_followed(mining_on_request: Instance) -> None:
    snapshot = await mining_on_request.rpc("evm_snapshot")
    answer = await a_mined_reward(mining_on_request)
    await mining_on_request.rpc("evm_mine")

    assert await mining_on_request.rpc("evm_revert", snapshot) is True

    await assert_reads_follow(mining_on_request, answer, SHRUNK_SECONDS)
    await assert_minted_again_once(mining_on_request, answer)


async def test_a_reorg_while_ltzd_is_down_is_found_at_its_next_start(
    mining_on_request: Instance,
) -> None:
    answer = await a_mined_reward(mining_on_request)
    await mining_on_request.kill9()
    await mining_on_request.rpc("anvil_reorg", 1, [])
    await mining_on_request.rpc("evm_mine")

    await mining_on_request.start_again()

    await assert_reads_follow(mining_on_request, answer, SHRUNK_SECONDS)
    await assert_minted_again_once(mining_on_request, answer)


async def test_a_mint_that_a_reorg_moves_to_another_block_is_not_sent_again(
    mining_on_request: Instance,
) -> None:
    answer = await a_mined_reward(mining_on_request)
    await mining_on_request.rpc("evm_mine")
    raw = await mining_on_request.ask("SELECT raw FROM attempts ORDER BY created_at DESC LIMIT 1")

    await mining_on_request.rpc("anvil_reorg", 2, [["0x" + raw.hex(), 1]])
    await the_head_is_indexed(mining_on_request)

    event = await mining_on_request.event(answer.event_id)
    head = await mining_on_request.rpc.number()
    assert (event["transactionHash"], event["blockNumber"]) == (answer.hash, head)
    await assert_books_agree(mining_on_request, [answer])


async def test_mints_dropped_by_a_reorg_are_all_minted_again_once(
    mining_on_request: Instance,
) -> None:
    answers = [await a_mined_reward(mining_on_request) for _ in range(8)]

    await mining_on_request.rpc("anvil_reorg", 6, [])
    await the_head_is_indexed(mining_on_request)
    balances = [await indexed(mining_on_request, answer) for answer in answers]

    assert balances == [100 * LTZ] * 2 + [0] * 6
    async with ticking(mining_on_request):
        await all_minted(mining_on_request, BACK_SECONDS)
    await assert_books_agree(mining_on_request, answers)


async def test_a_reorg_of_later_blocks_mints_nothing(
    mining_on_request: Instance,
) -> None:
    answer = await a_mined_reward(mining_on_request)
    for _ in range(3):
        await mining_on_request.rpc("evm_mine")
    before = (await mining_on_request.event(answer.event_id), await total_supply(mining_on_request))

    await mining_on_request.rpc("anvil_reorg", 3, [])
    await the_head_is_indexed(mining_on_request)
    assert (
        await mining_on_request.event(answer.event_id),
        await total_supply(mining_on_request),
    ) == before


async def test_on_a_dev_chain_a_reorg_below_finality_is_followed(
    mining_on_request: Instance,
) -> None:
    answer = await a_mined_reward(mining_on_request)
    await mining_on_request.rpc("anvil_mine", 70)

    async def is_final() -> bool:
        return bool((await mining_on_request.event(answer.event_id))["status"] == "final")

    await until(is_final)
    await mining_on_request.rpc("anvil_reorg", 71, [])

    await assert_reads_follow(mining_on_request, answer, FOLLOWED_SECONDS)
    assert answer.event_id not in {
        str(mint.reward) for mint in await mints_on_chain(mining_on_request)
    }
    await assert_minted_again_once(mining_on_request, answer)

"""Rising fees: a stuck mint is replaced, and no transaction pays more than the cap.

The tests mine the blocks and set the base fee of each.
"""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest_asyncio

from tests.support.chain.tester import GWEI
from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.fees import lane_shows, mine_at, mined_by_hand
from tests.support.instances.instance import Answer, Instance
from tests.support.waiting import until

CAP = 100 * GWEI
CALM = 2 * GWEI


@pytest_asyncio.fixture
async def mining_on_request(instance: Instance) -> AsyncIterator[Instance]:
    await all_minted(instance)
    async with mined_by_hand(instance):
        await mine_at(instance, CALM)
        yield instance


async def post(instance: Instance) -> Answer:
    return await instance.post_event(f"{uuid4().hex}@shop.example")


async def attempts_of(instance: Instance, answer: Answer) -> list[asyncpg.Record]:
    """Returns the attempts, the cheapest first."""
    async with instance.database() as connection:
        return list(
            await connection.fetch(
                "SELECT a.* FROM attempts a JOIN rewards r USING (transaction_id) "
                "WHERE r.id = $1 ORDER BY a.max_fee_per_gas",
                UUID(answer.event_id),
            )
        )


async def mined_until_minted(instance: Instance, answer: Answer) -> dict[str, Any]:
    """Mines blocks with falling base fees until a block has the event's mint."""

    async def shows_it() -> dict[str, Any] | None:
        await instance.rpc("evm_mine")
        event = await instance.event(answer.event_id)
        return event if event["status"] in {"minted", "final"} else None

    event = await until(shows_it, 60.0)
    assert event is not None
    return event


async def assert_no_fee_exceeded_the_cap(instance: Instance) -> None:
    assert await instance.ask("SELECT max(max_fee_per_gas) FROM attempts") <= CAP
    assert await instance.ask(
        "SELECT bool_and(max_priority_fee_per_gas <= max_fee_per_gas) FROM attempts"
    )


async def test_a_stuck_mint_is_replaced_and_minted_exactly_once(
    mining_on_request: Instance,
) -> None:
    answer = await post(mining_on_request)
    assert answer.status == 200
    await mine_at(mining_on_request, 20 * GWEI)

    async def is_replaced() -> bool:
        attempts = await attempts_of(mining_on_request, answer)
        return len(attempts) > 1 and attempts[-1]["published_at"] is not None

    await until(is_replaced, 60.0)
    event = await mined_until_minted(mining_on_request, answer)

    stuck, replacement = await attempts_of(mining_on_request, answer)
    assert "0x" + stuck["hash"].hex() == answer.hash
    assert event["transactionHash"] == "0x" + replacement["hash"].hex()
    for fee in ("max_fee_per_gas", "max_priority_fee_per_gas"):
        assert replacement[fee] * 10 >= stuck[fee] * 11
    await assert_books_agree(mining_on_request, [answer])
    await assert_no_fee_exceeded_the_cap(mining_on_request)


async def test_above_the_fee_cap_events_queue_and_nothing_is_signed(
    mining_on_request: Instance,
) -> None:
    await mine_at(mining_on_request, 200 * GWEI)
    await lane_shows(mining_on_request, 'held_by_cap{kind="mint"}', 1)
    answer = await post(mining_on_request)

    assert (answer.status, answer.hash, answer.body["status"]) == (202, None, "queued")
    assert answer.body["success"] is True
    assert await attempts_of(mining_on_request, answer) == []

    event = await mined_until_minted(mining_on_request, answer)
    assert event["transactionHash"]
    await assert_books_agree(mining_on_request, [answer])
    await assert_no_fee_exceeded_the_cap(mining_on_request)


async def test_a_mint_at_the_cap_keeps_its_bytes_until_fees_fall(
    mining_on_request: Instance,
) -> None:
    await mine_at(mining_on_request, 107 * GWEI)  # An empty block: the next fee is lower.
    first = await post(mining_on_request)
    assert first.status == 200
    (signed,) = await attempts_of(mining_on_request, first)
    assert CAP * 10 // 11 < signed["max_fee_per_gas"] <= CAP

    await mine_at(mining_on_request, 150 * GWEI)
    await lane_shows(mining_on_request, 'lanes_paused{kind="mint",reason="fees"}', 1)
    second = await post(mining_on_request)
    assert (second.status, second.body["status"]) == (202, "queued")
    assert await attempts_of(mining_on_request, first) == [signed]

    event = await mined_until_minted(mining_on_request, first)
    assert event["transactionHash"] == first.hash == "0x" + signed["hash"].hex()
    await mined_until_minted(mining_on_request, second)
    await lane_shows(mining_on_request, 'lanes_paused{kind="mint",reason="fees"}', 0)
    await assert_books_agree(mining_on_request, [first, second])
    await assert_no_fee_exceeded_the_cap(mining_on_request)

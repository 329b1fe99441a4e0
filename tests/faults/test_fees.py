"""Rising fees: a stuck mint is replaced, no transaction pays more than the cap, and a patient
brand's reward waits for a cheaper block, through a kill, until its bound.

The tests mine the blocks and set the base fee of each.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest_asyncio

from tests.support.chain.tester import GWEI
from tests.support.commands import ltzd
from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.fees import lane_shows, mine_at, mined_by_hand
from tests.support.instances.instance import Answer, Instance
from tests.support.waiting import until

CAP = 100 * GWEI
CALM = 2 * GWEI
DEAR = 50 * GWEI
HOUR = 3_600


@pytest_asyncio.fixture
async def mining_on_request(instance: Instance) -> AsyncIterator[Instance]:
    await all_minted(instance)
    async with mined_by_hand(instance):
        await mine_at(instance, CALM)
        yield instance


async def post(instance: Instance, **changes: object) -> Answer:
    return await instance.post_event(f"{uuid4().hex}@shop.example", **changes)


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


@pytest_asyncio.fixture
async def mining_after_calm_blocks(instance: Instance) -> AsyncIterator[Instance]:
    await all_minted(instance)
    async with mined_by_hand(instance):
        await instance.rpc("anvil_setNextBlockBaseFeePerGas", hex(GWEI))
        for _ in range(20):
            await instance.rpc("evm_mine")
        yield instance


async def a_patient_brand(instance: Instance, folder: Path) -> str:
    brand_id = f"0x{uuid4().hex}{'0' * 8}"
    file = folder / f"{brand_id}.toml"
    file.write_text(
        f'[brand]\nid = "{brand_id}"\nname = "Patient"\ndomains = ["shop.example"]\n'
        f"patience_seconds = {HOUR}\n"
    )
    await ltzd("brand", "apply", file, "--data-dir", instance.data_dir)
    shown = await ltzd("brand", "show", brand_id, "--data-dir", instance.data_dir)
    assert f"patience_seconds = {HOUR}" in shown.out

    async def is_in_force() -> bool:
        url = f"{instance.base_url}/service-api/event-config?brandId={brand_id}"
        async with instance.http.get(url) as reply:
            return reply.status == 200

    await until(is_in_force)
    return brand_id


async def is_signed(instance: Instance, answer: Answer) -> bool:
    return bool(
        await instance.ask(
            "SELECT transaction_id IS NOT NULL FROM rewards WHERE id = $1", UUID(answer.event_id)
        )
    )


async def test_a_patient_reward_waits_through_a_kill_and_ends_cheap_or_at_its_bound(
    mining_after_calm_blocks: Instance, tmp_path: Path
) -> None:
    instance = mining_after_calm_blocks
    brand_id = await a_patient_brand(instance, tmp_path)
    await mine_at(instance, DEAR)
    waiting = await post(instance, brandId=brand_id)
    assert (waiting.status, waiting.hash, waiting.body["status"]) == (202, None, "queued")
    others = await post(instance)
    assert others.status == 200  # Signed and published at once, at the same price.
    await instance.kill9()
    await instance.start_again()
    await lane_shows(instance, 'brands_held{kind="mint"}', 1)
    assert (await instance.status())["rewards"]["mayWait"] == 1
    shown = await ltzd("event", "show", waiting.event_id, "--data-dir", instance.data_dir)
    assert "lets it wait for a cheaper block, until" in shown.out
    assert not await is_signed(instance, waiting)

    await instance.ask(
        "UPDATE rewards SET created_at = now() - make_interval(secs => $2) WHERE id = $1 "
        "RETURNING id",
        UUID(waiting.event_id),
        float(HOUR - 4),
    )
    await until(lambda: is_signed(instance, waiting))
    await instance.rpc("evm_mine")
    await instance.minted(waiting.event_id)

    await mine_at(instance, DEAR)
    second = await post(instance, brandId=brand_id)
    assert (second.status, second.body["status"]) == (202, "queued")
    assert not await is_signed(instance, second)
    await mine_at(instance, 1)  # As low as the empty blocks before.
    await until(lambda: is_signed(instance, second))
    await instance.rpc("evm_mine")
    await instance.minted(second.event_id)
    await assert_books_agree(instance, [waiting, others, second])

"""Claim limits, duplicates and budgets under concurrent load and kills, checked on the chain."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from tests.support.commands import ltzd
from tests.support.instances.books import (
    LTZ,
    all_minted,
    assert_books_agree,
    balances_on_chain,
    mints_on_chain,
)
from tests.support.instances.instance import Answer, Instance
from tests.support.instances.load import a_load, post_all
from tests.support.waiting import until

ACCEPTED = {200, 202}
"""With the hash of the mint, or without it if the lane takes longer than an answer waits."""
MAXIMUM = 777
CROWD = 10_000


def addresses(count: int) -> list[str]:
    """E-mail addresses of new users."""
    crowd = uuid4().hex
    return [f"{number}-{crowd}@shop.example" for number in range(count)]


async def a_brand(instance: Instance, folder: Path, rule: str, settings: str = "") -> str:
    """Applies a new brand's file by the CLI; returns its id once it is in force."""
    brand_id = f"0x{uuid4().hex}{'0' * 8}"
    file = folder / f"{brand_id}.toml"
    file.write_text(
        f'[brand]\nid = "{brand_id}"\nname = "Crowded"\ndomains = ["shop.example"]\n{settings}\n'
        f'[[events]]\ntype = "custom_drop"\ncooldown_hours = 0\nmax_claims_per_user = -1\n{rule}\n'
    )
    applied = await ltzd("brand", "apply", file, "--data-dir", instance.data_dir)
    assert applied.json["brandId"] == brand_id

    async def is_in_force() -> bool:
        url = f"{instance.base_url}/service-api/event-config?brandId={brand_id}"
        async with instance.http.get(url) as reply:
            return reply.status == 200

    await until(is_in_force)
    return brand_id


async def recorded(instance: Instance, brand_id: str) -> set[UUID]:
    async with instance.database() as connection:
        rows = await connection.fetch(
            "SELECT id FROM events WHERE brand_id = $1", bytes.fromhex(brand_id[2:])
        )
    return {row["id"] for row in rows}


async def minted(instance: Instance, events: set[UUID]) -> int:
    """The number of mints of these events on the chain."""
    return sum(mint.reward in events for mint in await mints_on_chain(instance))


def accepted(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.status in ACCEPTED]


async def test_fifty_identical_concurrent_events_are_recorded_and_minted_once(
    instance: Instance,
) -> None:
    (email,) = addresses(1)
    answers = await asyncio.gather(*(instance.taken_event(email) for _ in range(50)))

    (first,) = accepted(answers)
    assert Counter(answer.status for answer in answers if answer is not first) == {409: 49}
    duplicate = {
        "success": False,
        "error": "Duplicate event",
        "details": {"existingEventId": first.event_id},
    }
    assert all(answer.body == duplicate for answer in answers if answer is not first)
    await all_minted(instance)
    assert await minted(instance, {UUID(first.event_id)}) == 1
    wallet = first.body["walletAddress"].lower()
    assert await balances_on_chain(instance, [wallet]) == {wallet: 100 * LTZ}


async def test_ten_thousand_events_with_a_maximum_of_777_mint_exactly_777(
    one_instance: Instance, tmp_path: Path
) -> None:
    brand_id = await a_brand(one_instance, tmp_path, f"reward = 3\nmax_total_claims = {MAXIMUM}")
    users = await one_instance.ask("SELECT count(*) FROM users")

    answers = await post_all(
        one_instance, addresses(CROWD), brandId=brand_id, eventType="custom_drop"
    )

    winners = accepted(answers)
    assert (len(winners), len(answers)) == (MAXIMUM, CROWD)
    refused = [answer for answer in answers if answer not in winners]
    assert {answer.status for answer in refused} == {429}
    bodies = {json.dumps(answer.body, sort_keys=True) for answer in refused}
    (body,) = map(json.loads, bodies)
    message = body["details"].pop("message")
    assert str(MAXIMUM) in message
    assert body == {
        "success": False,
        "error": "Max claims reached",
        "details": {
            "reason": "max_claims_reached",
            "totalClaims": MAXIMUM,
            "maxClaims": MAXIMUM,
        },
    }
    assert len({answer.body["walletAddress"] for answer in winners}) == MAXIMUM
    await all_minted(one_instance)
    events = await recorded(one_instance, brand_id)
    assert events == {UUID(answer.event_id) for answer in winners}
    assert await minted(one_instance, events) == MAXIMUM
    assert await one_instance.ask("SELECT count(*) FROM users") == users + MAXIMUM
    await assert_books_agree(one_instance, winners)


async def test_kills_neither_exceed_a_maximum_nor_keep_it_from_being_reached(
    one_instance: Instance, tmp_path: Path
) -> None:
    most = 150
    brand_id = await a_brand(one_instance, tmp_path, f"reward = 2\nmax_total_claims = {most}")
    loads = []
    for share in (40, 80):
        async with a_load(
            one_instance, clients=16, brandId=brand_id, eventType="custom_drop"
        ) as load:
            await until(partial(has, one_instance, brand_id, share))
            await one_instance.kill9()
            await one_instance.start_again()
        loads.append(load)
    answers = await post_all(
        one_instance, addresses(2 * most), brandId=brand_id, eventType="custom_drop"
    )

    # All are refused if the load itself has reached the maximum since the last start.
    assert {answer.status for answer in answers} - ACCEPTED == {429}
    await all_minted(one_instance)
    events = await recorded(one_instance, brand_id)
    assert len(events) == most
    assert await minted(one_instance, events) == most
    accepted_answers = accepted(answers) + [answer for load in loads for answer in load.accepted]
    assert {UUID(answer.event_id) for answer in accepted_answers} <= events
    await assert_books_agree(one_instance, accepted_answers)


async def has(instance: Instance, brand_id: str, events: int) -> bool:
    return len(await recorded(instance, brand_id)) >= events


async def test_no_more_than_a_days_budget_is_minted(one_instance: Instance, tmp_path: Path) -> None:
    brand_id = await a_brand(
        one_instance, tmp_path, "reward = 7", "daily_mint_budget = 1000\nmax_reward_per_event = 7"
    )
    answers = await post_all(
        one_instance, addresses(400), brandId=brand_id, eventType="custom_drop"
    )
    assert len(accepted(answers)) == 142
    assert {answer.status for answer in answers} - ACCEPTED == {429}
    refused: list[Any] = [answer.body for answer in answers if answer.status == 429]
    assert {body["details"]["reason"] for body in refused} == {"budget_exhausted"}
    await all_minted(one_instance)
    events = await recorded(one_instance, brand_id)
    mints = [mint for mint in await mints_on_chain(one_instance) if mint.reward in events]
    assert sum(mint.amount for mint in mints) == 142 * 7 * LTZ
    await assert_books_agree(one_instance, accepted(answers))


async def test_one_user_is_paid_by_two_brands_at_once_into_one_new_wallet(
    instance: Instance,
) -> None:
    other = instance.dev_json["otherBrand"]
    for email in addresses(5):
        mine, theirs = await asyncio.gather(
            instance.post_event(email),
            instance.post_event(
                email.upper(),
                brandId=other["brandId"],
                domain=other["domain"],
                eventType="form_submit",
            ),
        )
        assert (mine.status, theirs.status) == (200, 200), (mine.body, theirs.body)
        assert mine.body["walletAddress"] == theirs.body["walletAddress"]
        assert sorted([mine.body["walletCreated"], theirs.body["walletCreated"]]) == [False, True]
        await all_minted(instance)
        assert await minted(instance, {UUID(mine.event_id), UUID(theirs.event_id)}) == 2
        wallet = mine.body["walletAddress"].lower()
        owed = mine.body["rewardAmount"] + theirs.body["rewardAmount"]
        assert await balances_on_chain(instance, [wallet]) == {wallet: owed * LTZ}

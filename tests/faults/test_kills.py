"""kill -9 of ltzd at random moments under load; its services survive and are adopted.

The seed is printed; LTZD_TEST_SEED repeats a run.
"""

import asyncio
import os
import random
import time
from uuid import UUID

import pytest

from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.instance import Instance
from tests.support.instances.load import Load, a_load
from tests.support.instances.shared import Instances

CLIENTS = 16
LONGEST_LIFE_SECONDS = 1.5
LONGEST_START_SECONDS = 1.0


@pytest.mark.parametrize(("kind", "kills"), [("anvil", 10), ("tester", 3)])
async def test_after_kills_at_random_moments_every_answered_event_is_minted_exactly_once(
    instances: Instances, kind: str, kills: int
) -> None:
    seed = int(os.environ.get("LTZD_TEST_SEED") or time.time_ns())
    print(f"seed {seed}")
    moments = random.Random(seed)
    instance = await instances.of(kind)
    services = instance.service_pids()
    await instance.rpc("evm_setAutomine", False)
    await instance.rpc("evm_setIntervalMining", 1)
    try:
        async with a_load(instance, CLIENTS) as load:
            for _ in range(kills):
                await kill_and_restart(instance, moments)
        await all_minted(instance, 30.0)
    finally:
        # A failed start has stopped the chain, too: then its own error is what the test tells.
        if instance.is_running:
            await instance.rpc("evm_setIntervalMining", 0)
            await instance.rpc("evm_setAutomine", True)

    print(f"{len(load.accepted)} accepted, {len(load.unknown)} unknown, {load.statuses()}")
    assert len(load.accepted) > kills, "no request was in flight at the kill"
    await assert_books_agree(instance, load.accepted)
    await assert_no_user_is_paid_twice(instance, load)
    assert instance.service_pids() == services, "a service was not adopted"


async def kill_and_restart(instance: Instance, moments: random.Random) -> None:
    """Kills ltzd while it serves, or one time in five during its start, and starts it again."""
    if moments.random() < 0.2:
        await instance.kill9()
        await instance.begin()
        await asyncio.sleep(moments.uniform(0, LONGEST_START_SECONDS))
    else:
        await asyncio.sleep(moments.uniform(0, LONGEST_LIFE_SECONDS))
    await instance.kill9()
    await instance.start_again()


async def assert_no_user_is_paid_twice(instance: Instance, load: Load) -> None:
    """Each address posted one request; a request with a lost answer counts at most once."""
    async with instance.database() as connection:
        rows = await connection.fetch(
            "SELECT id, email FROM events WHERE email = ANY($1::text[])",
            [*load.answers, *load.unknown],
        )
    assert len({row["email"] for row in rows}) == len(rows)
    recorded = {row["email"]: row["id"] for row in rows}
    for email, answer in load.answers.items():
        if answer.status in {200, 202}:
            assert recorded[email] == UUID(answer.event_id)

"""HTTP requests hold every database connection of their role; the other roles continue."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

from ltzd.rules.database_connections import PoolPolicy
from tests.support.chain.tester import GWEI
from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.fees import lane_shows, mine_at
from tests.support.instances.instance import Answer, Instance
from tests.support.waiting import until

CONNECTIONS = PoolPolicy().http


async def a_slow_request(instance: Instance) -> int:
    """A request that waits for the lock on its table. Returns its status."""
    body = {
        "brand_id": instance.dev_json["otherBrand"]["brandId"],
        "oauth_provider": "discord",
        "oauth_user_id": str(time.time_ns())[:18],
    }
    url = f"{instance.base_url}/service-api/pregenerate-user"
    async with instance.http.post(url, json=body) as reply:
        return reply.status


@asynccontextmanager
async def every_connection_held(instance: Instance) -> AsyncIterator[None]:
    """Slow requests hold all of HTTP's connections until the block ends."""

    async def all_are_held() -> bool:
        held = await instance.ask(
            """
            SELECT count(*) FROM pg_stat_activity
             WHERE application_name = 'ltzd http' AND wait_event_type = 'Lock'
            """
        )
        return bool(held == CONNECTIONS)

    requests: list[asyncio.Task[int]] = []
    async with instance.database() as connection:
        held = connection.transaction()
        await held.start()
        await connection.execute("LOCK TABLE pregenerations IN ACCESS EXCLUSIVE MODE")
        try:
            requests += [asyncio.create_task(a_slow_request(instance)) for _ in range(CONNECTIONS)]
            await until(all_are_held)
            yield
            assert await all_are_held()
        finally:
            await held.rollback()
    assert set(await asyncio.gather(*requests)) == {200}


async def queued_events(instance: Instance, count: int) -> list[Answer]:
    """Events that wait in the mint lane's queue because fees are above the cap."""
    await mine_at(instance, 200 * GWEI)
    await lane_shows(instance, 'held_by_cap{kind="mint"}', 1)
    answers = await asyncio.gather(
        *(instance.post_event(f"{uuid4().hex}@shop.example") for _ in range(count))
    )
    assert {answer.status for answer in answers} == {202}
    return list(answers)


async def announced(instance: Instance) -> set[str]:
    """The wallets of the brand's delivered announcements."""
    url = instance.dev_json["sandbox"]["webhookInboxUrl"]
    async with instance.http.get(url) as reply:
        deliveries = await reply.json()
    return {
        json.loads(each["body"]).get("walletAddress", "")
        for each in deliveries
        if each["status"] == 200
    }


async def test_slow_requests_hold_up_neither_mints_nor_indexer_nor_webhooks(
    one_instance: Instance,
) -> None:
    instance = one_instance
    await all_minted(instance)
    answers = await queued_events(instance, 5)
    rewards = [UUID(answer.event_id) for answer in answers]

    async def are_minted_and_indexed() -> bool:
        await instance.rpc("evm_mine")
        minted = await instance.ask(
            "SELECT count(*) FROM rewards WHERE id = ANY ($1) AND mint_block_hash IS NOT NULL",
            rewards,
        )
        return bool(minted == len(rewards))

    async def are_announced() -> bool:
        wallets = {answer.body["walletAddress"] for answer in answers}
        return wallets <= await announced(instance)

    async with every_connection_held(instance):
        await mine_at(instance, GWEI)
        await until(are_minted_and_indexed, 60.0)
        await until(are_announced, 60.0)
    await assert_books_agree(instance, answers)


async def test_while_every_connection_is_held_requests_are_refused_in_time_and_status_answers(
    one_instance: Instance,
) -> None:
    instance = one_instance
    async with every_connection_held(instance):
        refused = await instance.post_event(f"{uuid4().hex}@shop.example")
        assert refused.status == 503
        async with instance.http.get(f"{instance.base_url}/service-api/health") as reply:
            assert (reply.status, (await reply.json())["services"]["database"]) == (
                200,
                "connected",
            )
        status = await instance.status()
        assert (status["database"], status["reasons"]) == ("connected", [])
        url = f"http://127.0.0.1:{instance.admin_port}/metrics"
        async with instance.http.get(url) as reply:
            metrics = await reply.text()
        assert f'ltzd_store_pool_connections_in_use{{pool="http"}} {CONNECTIONS:.1f}' in metrics
    assert (await instance.post_event(f"{uuid4().hex}@shop.example")).status == 200

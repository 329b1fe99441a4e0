"""PostgreSQL refuses statements of every loop for a while, and the process goes on."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from tests.support.instances.instance import Instance
from tests.support.waiting import until

RENAMED = {
    "brands": "revision",
    "gas_spent": "wei",
    "site_redemptions": "payment_lost_at",
    "processes": "report",
    "operator_wallets": "added_at",
    "blocks": "parent_hash",
    "webhooks": "next_at",
}
"""A column of each table is unknown meanwhile, as during an upgrade that went wrong."""
FAILING = {"brands", "gas", "redemption_recheck", "process_report", "indexer"}
"""The loops that begin again. The others tell of an outage."""
TOLD = {"loop.failed", "fleet.not_read", "lane.failed", "webhooks.database_unavailable"}


async def test_the_process_outlives_statements_that_postgres_refuses(
    one_instance: Instance,
) -> None:
    instance, process = one_instance, one_instance.process
    begun = len(instance.printed())
    async with renamed(instance):

        async def all_told() -> bool:
            await instance.rpc("evm_mine")
            lines = lines_of(instance.printed()[begun:])
            failing = {line["loop"] for line in lines if line["event"] == "loop.failed"}
            return failing >= FAILING and {line["event"] for line in lines} >= TOLD

        await until(all_told)
        async with instance.http.get(f"{instance.base_url}/docs/openapi.json") as reply:
            assert reply.status == 200
    event = await accepted_event(instance)
    await instance.minted(event)
    sent = "SELECT count(*) FROM webhooks WHERE subject = $1::text::uuid AND state = 'delivered'"
    await until(lambda: instance.ask(sent, event))
    assert instance.process is process
    assert instance.is_running


async def test_a_full_disk_of_postgres_is_told_until_there_is_space(one_instance: Instance) -> None:
    instance = one_instance
    health = f"{instance.base_url}/service-api/health"
    ready = f"http://127.0.0.1:{instance.admin_port}/readyz?role=http"
    async with instance.database() as connection:
        await connection.execute(
            """
            CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                RAISE EXCEPTION 'could not extend file: No space left on device'
                    USING ERRCODE = '53100';
            END $$;
            CREATE TRIGGER full_disk BEFORE INSERT ON rewards EXECUTE FUNCTION no_space();
            """
        )
    answer = await instance.post_event(f"{uuid4().hex}@shop.example")
    assert answer.status == 503
    async with instance.http.get(health) as reply:
        assert reply.status == 503
        assert (await reply.json())["services"]["database"] == "unavailable"
    async with instance.http.get(ready) as reply:
        assert reply.status == 503
        (reason,) = (await reply.json())["reasons"]
        assert "disk is full" in reason
        assert "No space left on device (53100)" in reason
    async with instance.database() as connection:
        await connection.execute("DROP TRIGGER full_disk ON rewards")

    async def is_ready() -> bool:
        async with instance.http.get(ready) as reply:
            return reply.status == 200

    await until(is_ready)
    await instance.minted(await accepted_event(instance))


@asynccontextmanager
async def renamed(instance: Instance) -> AsyncIterator[None]:
    async with instance.database() as connection:
        for table, column in RENAMED.items():
            await connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other_name")
    try:
        yield
    finally:
        async with instance.database() as connection:
            for table, column in RENAMED.items():
                await connection.execute(
                    f"ALTER TABLE {table} RENAME COLUMN other_name TO {column}"
                )


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


async def accepted_event(instance: Instance) -> str:
    """The id of an event that is accepted as soon as its statements work again."""

    async def post() -> str | None:
        answer = await instance.post_event(f"{uuid4().hex}@shop.example")
        return answer.event_id if answer.status in {200, 202} else None

    event = await until(post)
    assert event is not None
    return event

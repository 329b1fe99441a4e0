"""The deliveries role deletes expired rows periodically; no other role does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from structlog.testing import capture_logs

from ltzd.daemon.settings.retention import RetentionSettings
from ltzd.deliveries.cleanup import (
    OLD_EVENTS_PERIOD_SECONDS,
    PERIOD_SECONDS,
    WEBHOOKS_PERIOD_SECONDS,
    Cleanup,
)
from ltzd.errors import DatabaseUnavailable
from ltzd.store.database import Connection, Pool, session
from ltzd.store.event_handler import partitions
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.telemetry import REGISTRY
from tests.support.rows.core import BRAND, a_wallet, running, value
from tests.support.surfaces.event_action import SEALER
from tests.support.surfaces.event_surface import an_event_surface
from tests.support.waiting import until

_OLD = "now() - interval '{age} days'"
OLD_AND_NEW = {
    "request_nonces": "(brand_id, nonce, request_id, created_at) "
    f"VALUES ('{{brand}}', '{{row}}', gen_random_uuid(), {_OLD})",
    "brand_usage": f"VALUES ('{{brand}}', 'ltz_per_day', {_OLD}, 1, 9)",
    "relays": "(user_address, to_address, data, function, serialized_per_user, fingerprint, "
    "gas_limit, max_cost_wei, window_start, state, created_at) "
    f"VALUES ('{{wallet}}', '{{wallet}}', '', 'f', false, '', 1, 1, now(), 'queued', {_OLD})",
    "gas_spent": "VALUES ((now() AT TIME ZONE 'UTC')::date - {age}, 'did:ann', 0, 5)",
    "constraint_results": "(user_address, collection_id, position, brand_id, kind, ticket, "
    "expires_at) VALUES ('{wallet}', {row}, 0, '{brand}', 'external_api', gen_random_uuid(), "
    f"{_OLD} + interval '1 hour')",
    "chat_claims": f"VALUES ({{row}}, 'account', '{{wallet}}', 1, {_OLD})",
    "webhooks": "(brand_id, kind, subject, state, created_at) "
    f"VALUES ('{{brand}}', 'payment_reversed', gen_random_uuid(), 'delivered', {_OLD})",
}
"""A row of each kind that expires, `age` days old."""

AGES = (0, 100)


LOOPS = 5
"""Of a cleanup."""


class Pauses:
    """A clock: each pause ends when the test lets it end."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self._ends = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.begun.append(seconds)
        await self._ends.wait()

    async def until_begun(self, count: int) -> None:
        async def are_begun() -> bool:
            return len(self.begun) >= count

        await until(are_begun)

    def end(self) -> None:
        self._ends.set()
        self._ends = asyncio.Event()


async def insert_rows(pool: Pool) -> None:
    async with session(pool) as connection:
        await connection.execute(
            "INSERT INTO brands (id, name, configuration, revision) VALUES ($1, 'Demo', '{}', 1)"
            " ON CONFLICT DO NOTHING",
            BRAND,
        )
        for row, age in enumerate(AGES):
            for table, values in OLD_AND_NEW.items():
                text = values.format(
                    brand=f"\\x{BRAND.hex()}", wallet=f"\\x{a_wallet(1).hex()}", age=age, row=row
                )
                await connection.execute(f"INSERT INTO {table} {text}")


async def counts(pool: Pool) -> dict[str, int]:
    return {table: await value(pool, f"SELECT count(*) FROM {table}") for table in OLD_AND_NEW}


async def test_expired_rows_of_every_table_are_deleted_and_the_others_are_kept(pool: Pool) -> None:
    await insert_rows(pool)
    pauses = Pauses()
    async with running(Cleanup(pool, ErasedAddresses(SEALER), sleep=pauses).run()):
        await pauses.until_begun(LOOPS)

    assert await counts(pool) == dict.fromkeys(OLD_AND_NEW, 1)


async def test_rows_are_deleted_every_minute_and_webhooks_every_hour(pool: Pool) -> None:
    pauses = Pauses()
    async with running(Cleanup(pool, ErasedAddresses(SEALER), sleep=pauses).run()):
        await pauses.until_begun(LOOPS)
        await insert_rows(pool)
        assert set((await counts(pool)).values()) == {2}
        pauses.end()
        await pauses.until_begun(2 * LOOPS)

    hourly = [WEBHOOKS_PERIOD_SECONDS, OLD_EVENTS_PERIOD_SECONDS] * 2
    assert sorted(pauses.begun) == [PERIOD_SECONDS] * 6 + hourly
    assert (PERIOD_SECONDS, WEBHOOKS_PERIOD_SECONDS) == (60, 3600)
    assert set((await counts(pool)).values()) == {1}


async def test_old_addresses_are_erased_as_the_settings_say(pool: Pool) -> None:
    policy = RetentionSettings(event_addresses_days=30, user_addresses_days=30).policy()
    async with session(pool) as connection:
        await connection.execute(
            """
            INSERT INTO users (id, email_key, identity_subject, wallet, created_at)
            SELECT gen_random_uuid(), age || '@shop.example', 'did', $1,
                   now() - age * '1 day'::interval
              FROM unnest(ARRAY[10, 100]) AS age
            """,
            a_wallet(1),
        )
    pauses = Pauses()
    async with running(Cleanup(pool, ErasedAddresses(SEALER), policy, sleep=pauses).run()):
        await pauses.until_begun(LOOPS)

    assert await value(pool, "SELECT count(*) FROM users WHERE email_key LIKE 'erased:%'") == 1
    assert await value(pool, "SELECT count(*) FROM users WHERE email_key LIKE '10@%'") == 1


async def test_partitions_of_old_events_are_dropped_as_the_settings_say(pool: Pool) -> None:
    async with session(pool) as connection:
        await partitions.ensure(connection, 1_700_000_000)
        await partitions.ensure(connection)
        before = await partitions.list_partitions(connection)
        # A hundred years ago is before the ids begin; the first partition is empty.
        for days, left in ((0, len(before)), (36_500, len(before) - 1), (30, 1)):
            policy = RetentionSettings(events_days=days).policy()
            pauses = Pauses()
            async with running(Cleanup(pool, ErasedAddresses(SEALER), policy, sleep=pauses).run()):
                await pauses.until_begun(LOOPS)
            assert len(await partitions.list_partitions(connection)) == left


async def test_cleanup_continues_after_a_database_outage(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert_rows(pool)
    pauses = Pauses()
    with monkeypatch.context() as patched:
        patched.setattr("ltzd.deliveries.cleanup.session", no_session)
        task = asyncio.create_task(Cleanup(pool, ErasedAddresses(SEALER), sleep=pauses).run())
        await pauses.until_begun(LOOPS)
    async with running(ended_by_cancellation(task)):
        assert set((await counts(pool)).values()) == {2}
        pauses.end()
        await pauses.until_begun(2 * LOOPS)

    assert set((await counts(pool)).values()) == {1}


@asynccontextmanager
async def no_session(pool: Pool) -> AsyncIterator[Connection]:
    if pool:
        raise DatabaseUnavailable("The database was lost")
    yield


async def ended_by_cancellation(task: asyncio.Task[None]) -> None:
    await task


async def test_work_that_postgresql_refuses_is_counted_and_the_other_work_goes_on(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_connection: Connection) -> None:
        raise asyncpg.InsufficientPrivilegeError("must be owner of table events")

    def runs(work: str, outcome: str) -> float:
        labels = {"work": work, "outcome": outcome}
        return REGISTRY.get_sample_value("ltzd_deliveries_cleanup_runs_total", labels) or 0.0

    monkeypatch.setattr(partitions, "ensure", refused)
    before = runs("partitions", "failed"), runs("short_lived", "done")
    pauses = Pauses()
    with capture_logs() as lines:
        async with running(Cleanup(pool, ErasedAddresses(SEALER), sleep=pauses).run()):
            await pauses.until_begun(LOOPS)
            pauses.end()
            await pauses.until_begun(2 * LOOPS)

    assert runs("partitions", "failed") == before[0] + 2
    assert runs("short_lived", "done") == before[1] + 2
    failures = [line for line in lines if line["event"] == "cleanup.failed"]
    assert [(line["work"], line["reason"]) for line in failures] == [
        ("partitions", "PostgreSQL refuses it: 42501")
    ]


async def test_a_secret_that_no_master_key_opens_stops_erasures_and_nothing_else(
    pool: Pool,
) -> None:
    await insert_rows(pool)
    async with session(pool) as connection:
        await connection.execute(
            """
            INSERT INTO users (id, email_key, identity_subject, wallet, created_at)
            VALUES (gen_random_uuid(), 'ann@shop.example', 'did', $1, now() - interval '1 year')
            """,
            a_wallet(1),
        )
        await connection.execute("INSERT INTO erasure_keys VALUES ('addresses', 'gone', '')")
    policy = RetentionSettings(user_addresses_days=30).policy()
    pauses = Pauses()
    with capture_logs() as lines:
        async with running(Cleanup(pool, ErasedAddresses(SEALER), policy, sleep=pauses).run()):
            await pauses.until_begun(LOOPS)
    failures = [line for line in lines if line["event"] == "cleanup.failed"]
    assert [line["work"] for line in failures] == ["retention"]
    assert "old_master_key_files" in failures[0]["reason"]
    assert set((await counts(pool)).values()) == {1}


@pytest.mark.parametrize(("role", "left"), [("deliveries", 1), ("http", 2)])
async def test_only_the_deliveries_role_deletes_expired_rows(
    database_url: str, pool: Pool, tmp_path: Path, role: str, left: int
) -> None:
    await insert_rows(pool)
    async with an_event_surface(database_url, tmp_path, roles=[role]) as surface:
        assert (surface.daemon.deliveries is not None) == (role == "deliveries")
        if role == "deliveries":
            await until(lambda: deleted_everything(pool))
    assert set((await counts(pool)).values()) == {left}


async def deleted_everything(pool: Pool) -> bool:
    return set((await counts(pool)).values()) == {1}

"""The facts that conditions are judged from, read from real rows."""

from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import uuid4

import pytest_asyncio

from ltzd.rules.conditions.facts import QueueFacts
from ltzd.store import database
from ltzd.store.cluster import read_cluster
from ltzd.store.database import Connection
from ltzd.store.indexer.rebuild import orders
from tests.support.rows.explained import Explained

BACKLOG = 20_000
MOST_ROWS_READ = 1_000
BRAND, PAUSED = b"\xab" * 20, b"\xac" * 20
WALLET = b"\x11" * 20


@pytest_asyncio.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(database_url, "test")
    for brand, url in ((BRAND, '"https://shop.example/hook"'), (PAUSED, "null")):
        await connection.execute(
            """
            INSERT INTO brands (id, name, configuration, revision)
            VALUES ($1, $2, jsonb_build_object('webhook_url', $3::text::jsonb), 1)
            """,
            brand,
            brand.hex(),
            url,
        )
    await connection.execute("UPDATE brands SET paused_at = now() WHERE id = $1", PAUSED)
    yield connection
    await connection.close()


async def rewards(
    connection: Connection, count: int, age: int, brand: bytes = BRAND, **columns: Any
) -> None:
    above_limit, kind = columns.get("above_limit", False), columns.get("kind", 1)
    await connection.execute(
        """
        INSERT INTO rewards (id, kind, brand_id, wallet, ltz, above_limit, created_at)
        SELECT gen_random_uuid(), $5::int, $1, $2, 5, $4::bool, now() - make_interval(secs => $3)
          FROM generate_series(1, $6::int)
        """,
        brand,
        WALLET,
        float(age),
        above_limit,
        kind,
        count,
    )


async def webhooks(connection: Connection, count: int, age: int, brand: bytes = BRAND) -> None:
    await connection.execute(
        """
        INSERT INTO webhooks (id, brand_id, kind, subject, state, next_at, created_at)
        SELECT gen_random_uuid(), $1, 'ltz_distributed', gen_random_uuid(), 'pending',
               now() - make_interval(secs => $2), now() - interval '1 day'
          FROM generate_series(1, $3::int)
        """,
        brand,
        float(age),
        count,
    )


async def queues(connection: Connection) -> QueueFacts:
    return (await read_cluster(connection)).queues


async def test_an_empty_database_has_no_facts(connection: Connection) -> None:
    facts = await read_cluster(connection)
    assert (facts.chain, facts.processes, facts.wallets, facts.queues) == (
        None,
        (),
        (),
        QueueFacts(),
    )


async def test_only_work_that_could_be_done_now_is_overdue(connection: Connection) -> None:
    await rewards(connection, 1, 900, PAUSED)
    await rewards(connection, 2, 800, above_limit=True)
    await webhooks(connection, 1, 700, PAUSED)  # which has no endpoint
    await webhooks(connection, 1, -60)
    facts = await queues(connection)
    assert (facts.reward_seconds, facts.rewards_above_limit) == (None, 2)
    assert facts.webhook_seconds is None

    await rewards(connection, 1, 30)
    await rewards(connection, 1, 40, kind=2)
    await webhooks(connection, 1, 50)
    facts = await queues(connection)
    assert facts.reward_seconds is not None
    assert facts.webhook_seconds is not None
    assert (round(facts.reward_seconds, -1), round(facts.webhook_seconds, -1)) == (40, 50)

    await connection.execute(
        "INSERT INTO webhook_endpoints (brand_id, disabled_url, disabled_at, disabled_reason)"
        " VALUES ($1, 'https://shop.example/hook', now(), '410')",
        BRAND,
    )
    facts = await queues(connection)
    assert (facts.webhook_seconds, facts.disabled_endpoints) == (None, ((BRAND, "410"),))


async def test_a_wallet_tells_its_holder_and_its_pause(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO operator_wallets (chain_id, wallet, kind) VALUES (1, $1, 'mint')", WALLET
    )
    (wallet,) = (await read_cluster(connection)).wallets
    assert (wallet.wallet, wallet.kind, wallet.holder, wallet.paused_for) == (
        WALLET,
        "mint",
        None,
        None,
    )
    await connection.execute(
        """
        INSERT INTO lanes (chain_id, wallet, kind, epoch, next_nonce, paused_for, paused_since,
                           paused_seen_at)
        VALUES (1, $1, 'mint', 1, 0, 'fees', now() - interval '90 seconds', now())
        """,
        WALLET,
    )
    await connection.execute(
        """
        INSERT INTO leases (name, holder, process, pid, backend_start, taken_at, renewed_at,
                            expires_at)
        VALUES ('lane/1/0x' || encode($1::bytea, 'hex'), $2, 'host-a/7', 1, now(), now(), now(),
                now() + interval '3 seconds')
        """,
        WALLET,
        uuid4(),
    )
    (wallet,) = (await read_cluster(connection)).wallets
    assert (wallet.holder, wallet.paused_for) == ("host-a/7", "fees")
    assert wallet.paused_seconds is not None
    assert 89 < wallet.paused_seconds < 120
    await connection.execute("UPDATE lanes SET paused_seen_at = now() - interval '2 minutes'")
    await connection.execute("UPDATE leases SET expires_at = now() - interval '1 second'")
    (wallet,) = (await read_cluster(connection)).wallets
    assert (wallet.holder, wallet.paused_for) == (None, None)


async def test_background_work_that_fails_is_told_with_its_error(connection: Connection) -> None:
    facts = await read_cluster(connection)
    assert (facts.rebuild, facts.rebuild_error, facts.migration_errors) == (None, None, {})
    await connection.execute("INSERT INTO rebuilds (reason, error) VALUES ('ordered', 'No disk')")
    await connection.execute(
        """
        INSERT INTO background_migrations (name, table_name, started_at, error)
        VALUES ('partition mints', 'mints', now(), '53100'),
               ('partition transfers', 'transfers', now(), NULL)
        """
    )
    facts = await read_cluster(connection)
    assert (facts.rebuild, facts.rebuild_error) == ("ordered", "No disk")
    assert facts.migrations == ("partition mints", "partition transfers")
    assert facts.migration_errors == {"partition mints": "53100"}
    await connection.execute("UPDATE rebuilds SET error = $1", orders.WAITS_FOR_MIGRATIONS)
    assert (await read_cluster(connection)).rebuild_error is None


async def test_a_backlog_of_any_size_costs_readiness_nothing(connection: Connection) -> None:
    """This holds with and without planner statistics."""
    for brand in (BRAND, PAUSED):
        await rewards(connection, BACKLOG, 500, brand)
        await webhooks(connection, BACKLOG, 500, brand)
    await rewards(connection, BACKLOG, 500, kind=2)
    for statement in ("SELECT 1", "ANALYZE"):
        await connection.execute(statement)
        explained = Explained(connection)
        facts = await read_cluster(cast("Connection", explained))
        assert facts.queues.reward_seconds is not None
        assert facts.queues.reward_seconds > 499
        assert explained.read < MOST_ROWS_READ, statement

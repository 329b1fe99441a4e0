"""Each role has database connections of its own, and waits a bounded time for them."""

import asyncio
from contextlib import AsyncExitStack
from time import perf_counter

import pytest

from ltzd import telemetry
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.rules.database_connections import PoolPolicy
from ltzd.store.database import Pool, connections_allowed, open_pool, session, transaction
from ltzd.store.role_pools import open_role_pools
from tests.support.rows.core import value
from tests.support.waiting import until

ROLES = ("http", "operator", "indexer", "deliveries")
IMPATIENT = PoolPolicy(http=2, operator=2, http_wait_seconds=0.2)


async def exhausted(stack: AsyncExitStack, pool: Pool) -> None:
    """Hold all connections of the pool until the stack ends."""
    for _ in range(pool.limit):
        await stack.enter_async_context(session(pool))


async def test_a_role_without_free_connections_takes_none_from_another_role(
    database_url: str,
) -> None:
    async with (
        open_role_pools(database_url, ROLES, IMPATIENT) as pools,
        AsyncExitStack() as stack,
    ):
        await exhausted(stack, pools.http)
        for pool in (pools.operator, pools.indexer, pools.deliveries, pools.admin):
            async with transaction(pool) as connection:
                assert await connection.fetchval("SELECT 1") == 1


async def test_the_wait_for_a_connection_ends_with_an_error_that_names_it(
    database_url: str,
) -> None:
    timeouts = telemetry.POOL_TIMEOUTS.labels("http")._value
    async with (
        open_role_pools(database_url, ROLES, IMPATIENT) as pools,
        AsyncExitStack() as stack,
    ):
        await exhausted(stack, pools.http)
        before, begun = timeouts.get(), perf_counter()
        with pytest.raises(DatabaseUnavailable, match=r"No database connection.*within 0\.2 s"):
            await value(pools.http, "SELECT 1")
        assert perf_counter() - begun >= 0.2
        assert timeouts.get() == before + 1


async def test_a_waiting_caller_gets_the_connection_that_another_one_gives_back(
    database_url: str,
) -> None:
    async with open_role_pools(database_url, ROLES, PoolPolicy(http=2)) as pools:
        async with AsyncExitStack() as stack:
            await exhausted(stack, pools.http)
            waiting = asyncio.create_task(value(pools.http, "SELECT 7"))
            assert await asyncio.wait({waiting}, timeout=0.05) == (set(), {waiting})
        assert await waiting == 7


async def test_a_connection_is_free_again_after_its_callers_statement_is_cancelled(
    database_url: str,
) -> None:
    async with open_role_pools(database_url, ROLES, IMPATIENT) as pools:
        slow = [asyncio.create_task(value(pools.http, "SELECT pg_sleep(60)")) for _ in range(2)]

        async def are_running() -> bool:
            return pools.http.in_use == 2

        await until(are_running)
        for task in slow:
            task.cancel()
        await asyncio.wait(slow)
        assert await value(pools.http, "SELECT 1") == 1


async def test_a_timeout_of_the_callers_own_is_a_lost_database_and_frees_the_connection(
    database_url: str,
) -> None:
    async with open_role_pools(database_url, ROLES, IMPATIENT) as pools:
        for _ in range(3):
            with pytest.raises(DatabaseUnavailable, match="lost: it did not answer in time"):
                async with session(pools.http) as connection:
                    await connection.fetchval("SELECT pg_sleep(60)", timeout=0.05)
        assert await value(pools.http, "SELECT 1") == 1


async def test_roles_that_the_process_does_not_run_open_no_connection(database_url: str) -> None:
    async with open_role_pools(database_url, ("indexer",), PoolPolicy()) as pools:
        assert await value(pools.indexer, "SELECT 1") == 1
        assert await value(
            pools.admin,
            "SELECT array_agg(application_name ORDER BY application_name) FROM pg_stat_activity "
            "WHERE application_name LIKE 'ltzd%' AND datname = current_database()",
        ) == ["ltzd admin", "ltzd indexer"]


async def test_the_gauges_show_the_connections_in_use_and_their_limit(database_url: str) -> None:
    async with (
        open_role_pools(database_url, ROLES, IMPATIENT) as pools,
        AsyncExitStack() as stack,
    ):
        await exhausted(stack, pools.operator)
        pools.measure()
    shown = telemetry.exposition().decode()
    assert 'ltzd_store_pool_connections_in_use{pool="operator"} 2.0' in shown
    assert 'ltzd_store_pool_connections_limit{pool="operator"} 2.0' in shown
    assert 'ltzd_store_pool_connections_in_use{pool="http"} 0.0' in shown


async def test_a_refused_url_is_a_configuration_error() -> None:
    with pytest.raises(Misconfigured):
        await open_pool("postgresql://:no-port@localhost:x/ltzd")


async def test_the_connections_that_the_server_allows_leave_out_its_reserve(
    database_url: str,
) -> None:
    async with open_role_pools(database_url, ROLES, PoolPolicy()) as pools:
        async with session(pools.admin) as connection:
            allowed = await connections_allowed(connection)
        maximum = int(await value(pools.admin, "SHOW max_connections"))
    assert 0 < allowed < maximum


async def test_a_pool_grows_while_its_callers_wait(database_url: str) -> None:
    async with (
        open_role_pools(database_url, ROLES, IMPATIENT) as pools,
        AsyncExitStack() as stack,
    ):
        await exhausted(stack, pools.operator)
        waiting = asyncio.create_task(value(pools.operator, "SELECT 7"))
        assert await asyncio.wait({waiting}, timeout=0.05) == (set(), {waiting})
        pools.operator.grow(4)
        assert await waiting == 7
        pools.operator.grow(3)
        assert pools.operator.limit == 4


def test_the_operators_pool_grows_with_its_lanes() -> None:
    policy = PoolPolicy(operator=8)
    assert [policy.operator_size(lanes) for lanes in (0, 1, 2, 3, 10)] == [8, 8, 8, 10, 24]
    assert policy.total(("operator",), 10) == policy.total(("operator",)) + 16


def test_the_total_counts_every_pool_the_leases_and_the_listener() -> None:
    policy = PoolPolicy(http=10, operator=8, indexer=2, deliveries=4, admin=2)
    assert policy.total(ROLES) == (10 + 8 + 2 + 4) + 2 + 1 + 1
    assert policy.total(("http",)) == 10 + 2 + 1

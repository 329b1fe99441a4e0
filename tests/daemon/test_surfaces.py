"""The settings of the public port: proxies, plain HTTP, and rate limits in Redis."""

import asyncio
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest
from msgspec.structs import replace
from pydantic import SecretStr
from structlog.testing import capture_logs

from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.daemon.assembly import Daemon, _limits
from ltzd.daemon.settings.log import LogSettings
from ltzd.daemon.settings.settings import HttpSettings, Settings, SiteSettings
from ltzd.daemon.surfaces import _health, http_app
from ltzd.errors import DatabaseUnavailable
from ltzd.http.admission.gate import AdmissionGate
from ltzd.store.database import connect, session
from tests.support.services.redis import a_redis_server
from tests.support.surfaces.event_surface import an_event_surface
from tests.support.surfaces.http_surface import (
    FakeConstraints,
    FakeDomains,
    FakeEvents,
    FakePayments,
    FakePerkCharges,
    FakePregeneration,
    FakeRelays,
    FakeSite,
    a_payment,
    serving,
)
from tests.support.waiting import until

ONCE = RateLimit("once", 1, 60)
BEHIND_US = HttpSettings.model_validate({"proxies_count": 1, "trusted_proxies": ["127.0.0.1"]})


def a_daemon(http: HttpSettings, chain_id: int = 31337) -> Daemon:
    """A daemon with the components that the public application uses."""
    settings = SimpleNamespace(http=http, explorer_url=None, site=SiteSettings(), log=LogSettings())
    parts = {"events": FakeEvents(), "relayer": FakeRelays(), "limits": RateLimits()}
    parts |= {"perk_charges": FakePerkCharges(), "constraints": FakeConstraints()}
    contracts = SimpleNamespace(chain_id=chain_id)
    parts |= {
        "relay_context": SimpleNamespace(contracts=contracts),
        "domains": FakeDomains(),
        "payments": FakePayments(),
        "pregeneration": FakePregeneration(),
        "site": FakeSite().services(),
        "gate": AdmissionGate(),
    }
    return cast("Daemon", SimpleNamespace(settings=settings, **parts))


@pytest.mark.parametrize(
    ("http", "is_dev", "status"),
    [
        (BEHIND_US, False, 403),
        (BEHIND_US, True, 200),
        (HttpSettings(), False, 200),
        (HttpSettings(), True, 200),
    ],
)
async def test_plain_http_behind_our_proxies_is_refused_except_in_dev_mode(
    http: HttpSettings, is_dev: bool, status: int
) -> None:
    headers = {"X-Forwarded-Proto": "http", "X-Forwarded-For": "192.0.2.7"}
    async with (
        serving(http_app(a_daemon(http), is_dev)) as url,
        aiohttp.ClientSession() as client,
        client.get(url + "/service-api/debug", headers=headers) as answer,
    ):
        assert answer.status == status


@pytest.mark.parametrize(
    ("chain_id", "link"), [(8453, "https://basescan.org/tx/0x"), (31337, None)]
)
async def test_a_payments_link_is_to_the_explorer_that_the_chain_is_known_for(
    chain_id: int, link: str | None
) -> None:
    with capture_logs() as logs:
        daemon = a_daemon(HttpSettings(), chain_id)
        cast("FakePayments", daemon.payments).paid["cs_1"] = a_payment("cs_1")
        app = http_app(daemon, is_dev=False)
    async with (
        serving(app) as url,
        aiohttp.ClientSession() as client,
        client.post(f"{url}/service-api/payment-mint", json={"sessionId": "cs_1"}) as answer,
    ):
        explorer_url = (await answer.json())["blockExplorer"]
    assert explorer_url is None if link is None else explorer_url.startswith(link)
    assert ("explorer.unknown" in [line["event"] for line in logs]) is (link is None)


async def test_limits_are_counted_in_the_redis_of_the_settings_and_closed_with_the_rest(
    database_url: str, tmp_path: Path
) -> None:
    async with a_redis_server() as redis, redis.client() as client:
        known = await client.client_list()
        async with an_event_surface(database_url, tmp_path, redis_url=redis.url) as surface:
            await surface.daemon.limits.hit(ONCE, "x")
            assert await client.exists("ltzd:rl:once|60|x")
            assert b"redis" not in (await surface.get("/health")).raw.lower()

        async def is_alone() -> bool:
            return len(await client.client_list()) == len(known)

        assert await until(is_alone)


async def test_a_daemon_starts_and_counts_while_its_redis_is_away(
    database_url: str, tmp_path: Path
) -> None:
    gone = f"unix://{tmp_path / 'nothing.sock'}"
    with capture_logs() as logs:
        async with an_event_surface(database_url, tmp_path, redis_url=gone) as surface:
            limits = surface.daemon.limits
            assert [(await limits.hit(ONCE, "x")).is_within for _ in range(2)] == [True, False]
            assert (await surface.get("/health")).status == 200
    assert [entry["event"] for entry in logs].count("redis.away") == 1


class HungProvider:
    """An identity provider that never answers."""

    async def ping(self) -> bool:
        await asyncio.Event().wait()
        return True


async def test_health_waits_two_seconds_at_most_for_an_identity_provider_that_hangs(
    database_url: str, tmp_path: Path
) -> None:
    async with an_event_surface(database_url, tmp_path) as surface:
        daemon = replace(surface.daemon, identity=cast("IdentityProvider", HungProvider()))
        async with asyncio.timeout(20):
            health = await _health(daemon)
    assert (health.database, health.blockchain, health.identity_provider) == (True, True, False)


async def test_a_database_that_takes_no_writes_is_away_until_it_takes_them_again(
    database_url: str, tmp_path: Path
) -> None:
    """A process that accepts nothing must not stay behind a load balancer."""
    name = database_url.rpartition("/")[2]

    async def is_connected() -> bool:
        return (await _health(surface.daemon)).database

    async with an_event_surface(database_url, tmp_path) as surface:
        owner = await connect(database_url, "test")
        assert await until(is_connected)
        await owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

        async def is_read_only() -> bool:
            with suppress(DatabaseUnavailable):
                async with session(surface.daemon.pools.admin) as connection:
                    return bool(await connection.fetchval("SHOW transaction_read_only") == "on")
            return False

        assert await until(is_read_only)
        assert not await is_connected()
        await owner.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        assert await until(is_connected)
        await owner.close()


@pytest.mark.parametrize(("connections", "warnings"), [(10, 0), (1000, 1)])
async def test_a_start_warns_if_the_server_allows_fewer_connections_than_the_process_may_open(
    database_url: str, tmp_path: Path, connections: int, warnings: int
) -> None:
    bounds = {"http_connections": connections}
    with capture_logs() as logs:
        async with an_event_surface(database_url, tmp_path, database=bounds):
            pass
    events = [line["event"] for line in logs]
    assert events.count("database.too_few_connections") == warnings


async def test_a_process_without_http_asks_no_redis(tmp_path: Path) -> None:
    gone = SecretStr(f"unix://{tmp_path / 'nothing.sock'}")
    settings = cast("Settings", SimpleNamespace(roles=("operator",), redis_url=gone))
    with capture_logs() as logs:
        async with _limits(settings):
            pass
    assert logs == []

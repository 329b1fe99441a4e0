"""The check of Redis says whether it counts rate limits, and why not."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from ltzd.daemon.checks import redis
from ltzd.daemon.settings.settings import read_settings
from ltzd.rules.checks.findings import Finding, Level
from tests.support.installations import Installation
from tests.support.services.redis import RedisServer, a_redis_server


@pytest_asyncio.fixture(scope="module")
async def server() -> AsyncIterator[RedisServer]:
    async with a_redis_server() as server:
        yield server


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation.of(tmp_path, "postgresql://127.0.0.1:1/ltzd", "http://127.0.0.1:1")


async def _findings(installation: Installation, url: str | None) -> list[Finding]:
    if url is not None:
        installation.values["top"] = f'redis_url = "{url}"'
    return list(await redis.examine(read_settings(installation.write(), None)))


async def test_a_redis_that_counts_is_said_to_and_keeps_nothing(
    installation: Installation, server: RedisServer
) -> None:
    [finding] = await _findings(installation, server.url)

    assert finding == Finding("redis", Level.OK, "Redis counts rate limits.")
    async with server.client() as client:
        assert await client.dbsize() == 0


async def test_an_installation_without_redis_has_no_finding(installation: Installation) -> None:
    assert await _findings(installation, None) == []


async def test_a_process_without_http_has_no_finding(installation: Installation) -> None:
    installation.values["roles"] = '["indexer"]'
    assert await _findings(installation, "redis://127.0.0.1:1/0") == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://127.0.0.1:1/0", "the connection was refused"),
        ("redis://redis.invalid/0", "its name cannot be resolved"),
        ("unix:///nowhere/redis.sock", "no such file or directory"),
    ],
)
async def test_a_redis_that_is_away_is_a_warning(
    installation: Installation, url: str, reason: str
) -> None:
    _assert_warning(await _findings(installation, url), reason)


async def test_a_redis_that_hangs_is_a_warning(
    installation: Installation, server: RedisServer
) -> None:
    with server.hanging():
        findings = await _findings(installation, server.url)
    _assert_warning(findings, "it did not answer in time")


async def test_a_wrong_password_is_a_warning_that_does_not_tell_it(
    installation: Installation, server: RedisServer
) -> None:
    host = urlsplit(server.url).netloc.rpartition("@")[2]
    findings = await _findings(installation, f"redis://:hunter2@{host}/0")
    _assert_warning(findings, "invalid username-password pair")


async def _without_memory(client: Any) -> None:
    await client.config_set("maxmemory", "1")


async def _as_a_replica(client: Any) -> None:
    await client.replicaof("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [(_without_memory, "used memory > 'maxmemory'"), (_as_a_replica, "read only replica")],
)
async def test_a_redis_that_answers_and_counts_nothing_is_a_warning(
    installation: Installation,
    server: RedisServer,
    prepare: Callable[[Any], Awaitable[None]],
    reason: str,
) -> None:
    async with server.client() as client:
        await prepare(client)
        try:
            findings = await _findings(installation, server.url)
        finally:
            await client.config_set("maxmemory", "0")
            await client.replicaof("NO", "ONE")
    _assert_warning(findings, reason)


async def test_a_redis_that_evicts_keys_is_a_warning(
    installation: Installation, server: RedisServer
) -> None:
    """Other programs may fill a Redis: windows begin again before their time is over."""
    async with server.client() as client:
        used = (await client.info("memory"))["used_memory"]
        await client.config_set("maxmemory-policy", "allkeys-lru")
        await client.config_set("maxmemory", str(used + 100_000))
        try:
            for number in range(300):
                await client.set(f"page {number}", "x" * 1_000)
            [finding] = await _findings(installation, server.url)
            await client.acl_setuser(
                "limited", enabled=True, nopass=True, commands=["+@all", "-info"], keys=["*"]
            )
            host = urlsplit(server.url).netloc.rpartition("@")[2]
            [untold] = await _findings(installation, f"redis://limited:any@{host}/0")
        finally:
            await client.config_set("maxmemory", "0")
            await client.config_set("maxmemory-policy", "noeviction")
            await client.flushall()
            await client.config_resetstat()
    assert (finding.check, finding.level) == ("redis", Level.WARNING)
    assert finding.sentence.startswith("Redis has deleted ")
    assert "maxmemory" in finding.sentence
    assert untold.level is Level.OK, "a user who may not ask"


async def test_a_url_that_no_process_could_start_with_is_a_fault(
    installation: Installation,
) -> None:
    [finding] = await _findings(installation, "redis://127.0.0.1:1/0?unknown=1")

    assert finding.level is Level.FAULT
    assert finding.sentence == "redis_url has an option that Redis does not know."


def _assert_warning(findings: list[Finding], reason: str) -> None:
    [finding] = findings
    assert (finding.check, finding.level) == ("redis", Level.WARNING)
    assert finding.sentence.startswith("Redis counts no rate limits (")
    assert reason in finding.sentence
    assert "hunter2" not in finding.sentence

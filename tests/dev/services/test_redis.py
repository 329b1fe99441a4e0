"""The embedded Redis: adopted, with its data kept and its password required."""

from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError

from ltzd.dev.services import processes, redis
from ltzd.errors import Misconfigured
from tests.support.folders import a_data_directory


@pytest_asyncio.fixture
async def folder() -> AsyncIterator[Path]:
    async with a_data_directory() as held:
        yield held


async def test_it_is_adopted_while_it_runs_and_keeps_its_data_when_not(folder: Path) -> None:
    url = await redis.start(folder)
    service = processes.find_running(folder, "redis")
    assert service is not None
    async with Redis.from_url(url) as client:
        await client.set("kept", "yes")

    assert await redis.start(folder) == url
    assert processes.find_running(folder, "redis") == service

    await processes.stop_all(folder)
    assert not psutil.pid_exists(service.pid)
    async with Redis.from_url(await redis.start(folder)) as client:
        assert await client.get("kept") == b"yes"


async def test_it_asks_for_a_password_that_no_process_list_shows(folder: Path) -> None:
    url = await redis.start(folder)
    service = processes.find_running(folder, "redis")
    assert service is not None
    password = url.split(":")[2].split("@")[0]
    assert password not in " ".join(psutil.Process(service.pid).cmdline())
    at_once = Retry(NoBackoff(), 0)
    async with Redis(host="127.0.0.1", port=service.port, retry=at_once) as stranger:
        with pytest.raises(AuthenticationError):
            await stranger.get("kept")


async def test_broken_data_is_a_sentence_that_says_what_to_do(folder: Path) -> None:
    (folder / "redis").mkdir()
    (folder / "redis" / "appendonly.aof").write_text("not a log of commands")
    with pytest.raises(Misconfigured, match=r"Redis in .*/redis cannot be used: .*--clean"):
        await redis.start(folder)
    assert processes.find_running(folder, "redis") is None


async def test_it_starts_in_a_folder_of_any_name(folder: Path) -> None:
    named = folder / 'my "data" \\ 1'
    named.mkdir()
    async with Redis.from_url(await redis.start(named)) as client:
        assert await client.echo("ltzd") == b"ltzd"
    await processes.stop_all(named)

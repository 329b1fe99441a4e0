"""Rate limits on a real Redis, and without one: gone, hanging, refusing, and back again."""

import asyncio
import itertools
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.cache.rate_limits import TIMEOUT_SECONDS, RateLimit, RateLimits, RateLimitStatus
from ltzd.errors import Misconfigured
from tests.support.ports import free_port
from tests.support.services.redis import RedisServer, a_redis_server
from tests.support.services.tcp_front import a_tcp_front
from tests.support.waiting import Stopwatch, until

TEN = RateLimit("events_per_ip", 10, 60)
SOON = 0.05
"""A pause between trials short enough for a test."""
PATIENT = 60.0
"""So that a busy machine is no outage where there should be none."""


@pytest_asyncio.fixture(scope="module")
async def server() -> AsyncIterator[RedisServer]:
    async with a_redis_server() as server:
        yield server


@pytest_asyncio.fixture
async def redis(server: RedisServer) -> AsyncIterator[RedisServer]:
    """The module's server, emptied."""
    async with server.client() as client:
        await client.flushall()
    yield server


@pytest_asyncio.fixture
async def limits(redis: RedisServer) -> AsyncIterator[RateLimits]:
    async with RateLimits(redis.url, timeout_seconds=PATIENT) as limits:
        yield limits


async def hits(
    limits: RateLimits, count: int, *key: str, limit: RateLimit = TEN
) -> list[RateLimitStatus]:
    return await asyncio.gather(*(limits.hit(limit, *key) for _ in range(count)))


def within(windows: list[RateLimitStatus]) -> int:
    return sum(window.is_within for window in windows)


async def in_one_window(seconds: int, check: Callable[[str], Awaitable[None]]) -> tuple[float, str]:
    """Checks what holds while a window lasts; returns the time before, and the window's key.

    The check is made again in another window if it fails and took as long as a window does, as on a
    machine that stands still.
    """
    for number in itertools.count():
        begun, key = time.time(), f"x{number}"
        try:
            await check(key)
        except AssertionError:
            if time.time() - begun < seconds:
                raise
        else:
            return begun, key
    raise AssertionError("unreachable")


@contextmanager
def hanging(redis: RedisServer, limits: RateLimits) -> Iterator[None]:
    """Redis answers nobody. Only meanwhile are the calls of `limits` as impatient as ltzd's."""
    windows = limits._redis
    assert windows is not None
    with redis.hanging():
        windows._timeout_seconds = TIMEOUT_SECONDS
        yield
        windows._timeout_seconds = PATIENT


def value(name: str, **labels: str) -> float:
    return telemetry.REGISTRY.get_sample_value(name, labels) or 0.0


# --- counting ------------------------------------------------------------------------------------


async def four(redis_url: str | None) -> list[tuple[float, RateLimitStatus, float]]:
    """Four hits, each between the times before and after it."""
    limit = replace(TEN, max_hits=2)
    async with RateLimits(redis_url, timeout_seconds=PATIENT) as limits:
        return [
            (time.time(), await limits.hit(limit, "brand", "192.0.2.7"), time.time())
            for _ in range(4)
        ]


@pytest.mark.usefixtures("stalls_count")
async def test_a_window_tells_what_is_left_and_when_it_ends(redis: RedisServer) -> None:
    for url in (redis.url, None):
        hits_in_turn = await four(url)
        windows = [window for _, window, _ in hits_in_turn]
        assert [window.is_within for window in windows] == [True, True, False, False]
        assert [window.remaining for window in windows] == [1, 0, 0, 0]
        assert {window.limit for window in windows} == {2}
        begun, _, begun_before = hits_in_turn[0]
        for before, window, after in hits_in_turn:
            # The time left was read between the two times, and is told as of the second one.
            assert window.reset_at >= begun + 60 - 0.05
            assert window.reset_at <= begun_before + 60 + (after - before) + 0.05


@pytest.mark.parametrize("is_shared", [True, False], ids=["redis", "memory"])
async def test_a_hundred_hits_at_once_are_within_ten_times(
    redis: RedisServer, is_shared: bool
) -> None:
    async with RateLimits(redis.url if is_shared else None, timeout_seconds=PATIENT) as limits:
        assert within(await hits(limits, 100, "x")) == 10


async def test_two_processes_share_one_limit(redis: RedisServer) -> None:
    first = RateLimits(redis.url, timeout_seconds=PATIENT)
    second = RateLimits(redis.url, timeout_seconds=PATIENT)
    async with first, second:
        results = await asyncio.gather(hits(first, 100, "x"), hits(second, 100, "x"))
        assert within(results[0]) + within(results[1]) == 10


@pytest.mark.parametrize("is_shared", [True, False], ids=["redis", "memory"])
async def test_keys_limits_and_lengths_count_apart_and_case_does_not(
    redis: RedisServer, is_shared: bool
) -> None:
    async with RateLimits(redis.url if is_shared else None, timeout_seconds=PATIENT) as limits:
        for limit, key in (
            (TEN, ("0xAB", "192.0.2.7")),
            (TEN, ("0xab", "192.0.2.8")),
            (TEN, ("0xab|192.0.2.7",)),
            (replace(TEN, name="other"), ("0xab", "192.0.2.7")),
            (replace(TEN, seconds=3600), ("0xab", "192.0.2.7")),
        ):
            assert (await limits.hit(limit, *key)).remaining == 9
        assert (await limits.hit(TEN, "0xaB", "192.0.2.7")).remaining == 8


async def test_what_two_processes_spend_at_once_is_new_to_one_of_them(redis: RedisServer) -> None:
    keys = [("0xab", str(number)) for number in range(20)]
    first = RateLimits(redis.url, timeout_seconds=PATIENT)
    second = RateLimits(redis.url, timeout_seconds=PATIENT)
    async with first, second:
        results = await asyncio.gather(
            first.use_once("nonces", 60, keys[:15]), second.use_once("nonces", 60, keys[5:])
        )
        assert sum(results[0]) + sum(results[1]) == 20
        assert await first.use_once("nonces", 60, [*keys, ("0xcd", "1")]) == [False] * 20 + [True]


@pytest.mark.parametrize("is_shared", [True, False], ids=["redis", "memory"])
async def test_of_a_key_that_is_spent_twice_in_one_call_only_the_first_is_new(
    redis: RedisServer, is_shared: bool
) -> None:
    async with RateLimits(redis.url if is_shared else None, timeout_seconds=PATIENT) as limits:
        assert await limits.use_once("nonces", 60, [("a",), ("b",), ("a",)]) == [True, True, False]


@pytest.mark.parametrize("is_shared", [True, False], ids=["redis", "memory"])
async def test_a_changed_maximum_holds_in_windows_under_way(
    redis: RedisServer, is_shared: bool
) -> None:
    async with RateLimits(redis.url if is_shared else None, timeout_seconds=PATIENT) as limits:
        await hits(limits, 5, "x")
        assert not (await limits.hit(replace(TEN, max_hits=5), "x")).is_within
        assert (await limits.hit(replace(TEN, max_hits=7), "x")).is_within


@pytest.mark.parametrize("loses", ["server", "data"])
async def test_what_a_process_has_claimed_stays_claimed_though_redis_is_lost(loses: str) -> None:
    """A nonce that Redis alone knew could be used again as soon as Redis was away."""
    async with (
        a_redis_server() as server,
        RateLimits(server.url, timeout_seconds=PATIENT) as limits,
    ):
        assert await limits.use_once("nonces", 600, [("a",), ("b",)]) == [True, True]
        if loses == "server":
            await server.stop()
        else:
            async with server.client() as client:
                await client.flushall()
        assert await limits.use_once("nonces", 600, [("b",), ("a",), ("c",)]) == [
            False,
            False,
            True,
        ]


@pytest.mark.parametrize("is_shared", [True, False], ids=["redis", "memory"])
async def test_a_window_ends_though_refused_hits_go_on(redis: RedisServer, is_shared: bool) -> None:
    once = RateLimit("once", 1, 1)
    async with RateLimits(redis.url if is_shared else None, timeout_seconds=PATIENT) as limits:

        async def is_spent(key: str) -> None:
            assert (await limits.hit(once, key)).is_within
            assert not (await limits.hit(once, key)).is_within

        begun, key = await in_one_window(1, is_spent)

        async def again() -> bool:
            return (await limits.hit(once, key)).is_within

        assert await until(again, 10.0)
        assert time.time() - begun > 0.9


async def test_a_hit_is_one_call(redis: RedisServer, limits: RateLimits) -> None:
    await limits.hit(TEN, "x")
    async with redis.client() as client:
        await client.config_resetstat()
        for _ in range(15):
            await limits.hit(TEN, "x")
        calls = await client.info("commandstats")
    assert calls["cmdstat_evalsha"]["calls"] == 15
    inside = {"cmdstat_incr", "cmdstat_pttl"}
    connecting = {"cmdstat_auth", "cmdstat_client", "cmdstat_client|setinfo"}
    others = {"cmdstat_config", "cmdstat_config|resetstat", "cmdstat_info"}
    assert set(calls) <= {"cmdstat_evalsha"} | inside | connecting | others


async def test_hits_at_once_share_calls_and_each_counts_in_its_own_window(
    redis: RedisServer, limits: RateLimits
) -> None:
    minute, hour = RateLimit("of_a_minute", 1_000, 60), RateLimit("of_an_hour", 1_000, 3_600)
    await limits.hit(minute, "0")
    async with redis.client() as client:
        await client.config_resetstat()
        counted = await asyncio.gather(
            *(limits.hit(limit, str(key)) for key in range(20) for limit in [minute, hour, hour])
        )
        calls = await client.info("commandstats")

    assert calls["cmdstat_evalsha"]["calls"] <= 6
    assert calls["cmdstat_incr"]["calls"] == 60
    used = [1_000 - window.remaining for window in counted]
    assert sorted(used[:3]) == [1, 2, 2]
    assert used[0] == 2
    for at in range(3, 60, 3):
        assert (used[at], *sorted(used[at + 1 : at + 3])) == (1, 1, 2)
    now = time.time()
    assert all(window.reset_at - now <= 61 for window in counted[::3])
    assert all(window.reset_at - now > 3_500 for at, window in enumerate(counted) if at % 3)


async def test_every_key_has_an_end(redis: RedisServer, limits: RateLimits) -> None:
    await hits(limits, 30, "x")
    await hits(limits, 1, "y" * 10_000)
    await limits.use_once("nonces", 60, [("x",)])
    async with redis.client() as client:
        keys = [key async for key in client.scan_iter()]
        assert len(keys) == 3
        for key in keys:
            assert key.startswith((b"ltzd:rl:events_per_ip|60", b"ltzd:rl:nonces|60"))
            assert len(key) < 250
            assert 0 < await client.pttl(key) <= 60_000


async def test_a_key_that_lost_its_end_gets_another(redis: RedisServer, limits: RateLimits) -> None:
    await hits(limits, 11, "x")
    async with redis.client() as client:
        [key] = [key async for key in client.scan_iter()]
        await client.persist(key)
        assert not (await limits.hit(TEN, "x")).is_within
        assert 0 < await client.pttl(key) <= 60_000


@pytest.mark.parametrize("is_shared", [True, False], ids=["redis", "memory"])
async def test_a_spent_window_is_known_without_asking_until_it_ends(
    redis: RedisServer, is_shared: bool
) -> None:
    async with RateLimits(redis.url if is_shared else None, timeout_seconds=PATIENT) as limits:
        soon = RateLimit("soon_spent", 3, 2)

        async def is_known(key: str) -> None:
            await hits(limits, 2, key, limit=soon)
            assert limits.exhausted(soon, key) is None
            await hits(limits, 1, key, limit=soon)
            exhausted = limits.exhausted(soon, key.upper())
            assert exhausted is not None
            assert (exhausted.is_within, exhausted.limit, exhausted.remaining) == (False, 3, 0)
            assert time.time() < exhausted.reset_at <= time.time() + 2
            assert limits.exhausted(soon, "y") is None
            assert limits.exhausted(replace(soon, max_hits=4), key) is None, (
                "more may be allowed at once"
            )

        _, key = await in_one_window(2, is_known)

        async def is_over() -> bool:
            return limits.exhausted(soon, key) is None

        await until(is_over)
        assert (await limits.hit(soon, key)).is_within


async def test_spent_windows_are_remembered_of_a_bounded_number() -> None:
    async with RateLimits(max_remembered=3) as limits:
        once = RateLimit("bounded", 1, 60)
        for number in range(5):
            await limits.hit(once, str(number))
        known = [limits.exhausted(once, str(number)) is not None for number in range(5)]
        assert known == [False, False, True, True, True]


async def test_hits_are_counted_by_limit_and_outcome(limits: RateLimits) -> None:
    name = "ltzd_cache_rate_limit_hits_total"
    before = [value(name, limit="metered", outcome=outcome) for outcome in ("within", "over")]
    await hits(limits, 5, "x", limit=RateLimit("metered", 3, 60))
    after = [value(name, limit="metered", outcome=outcome) for outcome in ("within", "over")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [3, 2]


# --- Redis forgets, refuses or is not there ------------------------------------------------------


async def test_an_emptied_redis_counts_from_the_start(
    redis: RedisServer, limits: RateLimits
) -> None:
    with capture_logs() as logs:
        for command in ("FLUSHALL", "SCRIPT FLUSH"):
            await hits(limits, 20, "x")
            async with redis.client() as client:
                await client.flushall()
                await client.execute_command(command)
            assert within(await hits(limits, 20, "x")) == 10
    assert logs == []


async def test_a_redis_that_is_not_there_is_said_once_and_counted_around() -> None:
    url = f"redis://:hunter2@127.0.0.1:{free_port()}/0"
    errors = value("ltzd_cache_redis_errors_total")
    with capture_logs() as logs:
        async with RateLimits(url) as limits:
            assert value("ltzd_cache_redis_unavailable") == 1
            assert within(await hits(limits, 100, "x")) == 10
    [event] = logs
    assert (event["event"], event["log_level"]) == ("redis.away", "warning")
    assert "hunter2" not in str(logs)
    assert value("ltzd_cache_redis_errors_total") == errors + 1


def trying_often(redis: RedisServer) -> RateLimits:
    return RateLimits(redis.url, timeout_seconds=PATIENT, retry_seconds=SOON)


async def refuses(redis: RedisServer, *settings: tuple[str, str]) -> None:
    """Hits are counted in memory while Redis has these settings, and in Redis again afterwards."""
    async with redis.client() as client, trying_often(redis) as limits:
        before = {name: (await client.config_get(name))[name] for name, _ in settings}
        try:
            for name, text in settings:
                await client.config_set(name, text)
            with capture_logs() as logs:
                assert within(await hits(limits, 30, "x")) == 10
            assert [entry["event"] for entry in logs] == ["redis.away"]
        finally:
            for name, text in before.items():
                await client.config_set(name, text)
        await comes_back(redis, limits)


async def comes_back(redis: RedisServer, limits: RateLimits) -> None:
    """Redis counts again, every hit, and it is said once."""
    with capture_logs() as logs:
        async with redis.client() as client:

            async def is_stored() -> bool:
                await limits.hit(TEN, "back")
                return bool(await client.exists("ltzd:rl:events_per_ip|60|back"))

            assert await until(is_stored)
            await hits(limits, 20, "back")
            assert await client.get("ltzd:rl:events_per_ip|60|back") == b"21"
    assert [entry["event"] for entry in logs] == ["redis.back"]
    assert value("ltzd_cache_redis_unavailable") == 0


async def test_a_full_redis_refuses_nobody(redis: RedisServer) -> None:
    await refuses(redis, ("maxmemory-policy", "noeviction"), ("maxmemory", "1"))


async def test_a_redis_that_may_not_be_written_refuses_nobody(redis: RedisServer) -> None:
    async with redis.client() as client, trying_often(redis) as limits:
        await client.replicaof("127.0.0.1", free_port())
        try:
            assert within(await hits(limits, 30, "x")) == 10
        finally:
            await client.replicaof("NO", "ONE")
        await comes_back(redis, limits)


async def test_a_wrong_password_refuses_nobody_and_is_in_no_log(redis: RedisServer) -> None:
    wrong = redis.url.replace("redis://:", "redis://:hunter2", 1)
    with capture_logs() as logs:
        async with RateLimits(wrong) as limits:
            assert within(await hits(limits, 30, "x")) == 10
    assert [entry["event"] for entry in logs] == ["redis.away"]
    assert "hunter2" not in str(logs)


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"*2\r\n:1\r\n+x\r\n"]
)
async def test_a_server_that_is_no_redis_refuses_nobody(greeting: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(64)
        writer.write(greeting)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with RateLimits(f"redis://127.0.0.1:{port}") as limits:
            assert within(await hits(limits, 30, "x")) == 10


# --- Redis goes and comes back -------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["stop", "kill"])
async def test_a_redis_that_ends_on_the_way_is_counted_around_until_it_is_back(ends: str) -> None:
    async with a_redis_server() as server, trying_often(server) as limits:
        assert within(await hits(limits, 8, "x")) == 8
        with capture_logs() as logs:
            under_way = [asyncio.create_task(limits.hit(TEN, "y")) for _ in range(40)]
            await (server.stop() if ends == "stop" else server.kill())
            # Some may have been counted by Redis, some here; nobody is refused for nothing.
            assert 10 <= within(await asyncio.gather(*under_way)) <= 20
            assert within(await hits(limits, 30, "z")) == 10
            assert value("ltzd_cache_redis_unavailable") == 1
        assert [entry["event"] for entry in logs] == ["redis.away"]
        await server.start()
        await comes_back(server, limits)


async def test_a_redis_that_hangs_costs_its_callers_little_and_one_of_them_tries_again(
    redis: RedisServer,
) -> None:
    async with RateLimits(redis.url, timeout_seconds=PATIENT, retry_seconds=1.5) as limits:
        await hits(limits, 20, "warm")
        with hanging(redis, limits), capture_logs() as logs:
            begun = time.monotonic()
            watch = Stopwatch()
            assert within(await hits(limits, 40, "x")) == 10
            # All wait at the same time; the bound is for a busy machine.
            assert time.monotonic() - begun >= TIMEOUT_SECONDS
            assert watch.seconds() < 8 * TIMEOUT_SECONDS

            errors = value("ltzd_cache_redis_errors_total")
            await hits(limits, 40, "y")
            assert value("ltzd_cache_redis_errors_total") == errors, "nobody else tried"

            async def is_tried_again() -> bool:
                await hits(limits, 20, "z")
                return value("ltzd_cache_redis_errors_total") > errors

            assert await until(is_tried_again)
            assert value("ltzd_cache_redis_errors_total") == errors + 1
        assert [entry["event"] for entry in logs] == ["redis.away"]
        await comes_back(redis, limits)


async def test_answers_that_come_too_late_are_nobody_elses(redis: RedisServer) -> None:
    """A connection given up while Redis hung must not tell the next caller what it owed."""
    async with trying_often(redis) as limits:
        await hits(limits, 50, "many")
        with hanging(redis, limits):
            await hits(limits, 50, "many")
        await comes_back(redis, limits)
        for number in range(50):
            assert (await limits.hit(TEN, f"new {number}")).remaining == 9


async def test_a_caller_that_leaves_is_no_outage(redis: RedisServer, limits: RateLimits) -> None:
    left = 0
    with capture_logs() as logs:
        while left < 20:
            leaving = asyncio.create_task(limits.hit(TEN, "left"))
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.wait({leaving})
            left += leaving.cancelled()  # else it was answered before
        assert (await limits.hit(TEN, "stays")).remaining == 9
        assert (await limits.hit(TEN, "stays")).remaining == 8
    assert logs == []


@pytest.mark.parametrize("is_hanging", [True, False])
async def test_closing_leaves_no_task_and_no_connection(
    redis: RedisServer, is_hanging: bool
) -> None:
    before = asyncio.all_tasks()
    async with redis.client() as client:
        known = await client.client_list()
        limits = RateLimits(redis.url)
        await hits(limits, 50, "x")
        if is_hanging:
            with redis.hanging():
                await asyncio.wait_for(limits.close(), 2.0)
        else:
            await limits.close()
        assert asyncio.all_tasks() == before

        async def is_alone() -> bool:
            return len(await client.client_list()) <= len(known)

        assert await until(is_alone)


async def test_idle_connections_that_redis_has_closed_are_opened_anew(
    redis: RedisServer, limits: RateLimits
) -> None:
    await hits(limits, 100, "x")
    async with redis.client() as client:
        own = await client.client_id()
        for each in await client.client_list():
            if int(each["id"]) != own:
                await client.client_kill_filter(_id=each["id"])
        await client.ping()  # the event loop has seen all ends before this answer
    with capture_logs() as logs:
        assert within(await hits(limits, 20, "x")) == 0
    assert logs == []


async def test_a_demoted_redis_is_left_for_the_server_that_its_name_leads_to(
    redis: RedisServer,
) -> None:
    """The demoted server lives on as a replica, so no connection to it ends by itself."""
    old = urlsplit(redis.url)
    async with a_redis_server() as promoted, a_tcp_front([old.port or 0]) as (front, port):
        url = old._replace(netloc=f":{old.password}@127.0.0.1:{port}").geturl()
        async with redis.client() as client, promoted.client() as new_client:
            await new_client.config_set("requirepass", old.password)
            async with RateLimits(url, timeout_seconds=PATIENT, retry_seconds=SOON) as limits:
                await hits(limits, 100, "x")
                front.targets = [urlsplit(promoted.url).port or 0]
                await client.replicaof("127.0.0.1", free_port())
                try:
                    with capture_logs() as logs:

                        async def is_counted_there() -> bool:
                            await hits(limits, 100, "y")
                            return bool(await new_client.exists("ltzd:rl:events_per_ip|60|y"))

                        await until(is_counted_there)
                        await hits(limits, 100, "y")
                finally:
                    await client.replicaof("NO", "ONE")
    assert [line["event"] for line in logs] == ["redis.away", "redis.back"]


async def test_a_crowd_opens_few_connections(redis: RedisServer, limits: RateLimits) -> None:
    assert within(await hits(limits, 1_000, "x")) == 10
    async with redis.client() as client:
        assert len(await client.client_list()) <= 17


# --- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["redis://:hunter2@h/0?nonsense=1", "redis://:hunter2@h?socket_timeout=soon"]
)
def test_an_option_that_redis_does_not_know_is_refused_at_once(url: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        RateLimits(url)
    assert "redis_url" in caught.value.message
    assert "hunter2" not in caught.value.message


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def to_redis(redis: RedisServer) -> Handler:
    """A handler that forwards everything to the server."""
    port = int(redis.url.rpartition(":")[2].partition("/")[0])

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(4096):
            writer.write(chunk)
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_redis, redis_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(passed_on(reader, redis_writer), passed_on(from_redis, writer))
        await asyncio.gather(writer.wait_closed(), redis_writer.wait_closed())

    return handle


def a_certificate(folder: Path) -> tuple[Path, Path]:
    """The files of a certificate for 127.0.0.1, which vouches for itself, and of its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=redis")
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    files = folder / "redis.crt", folder / "redis.key"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
    return files


@asynccontextmanager
async def over_tls(redis: RedisServer, folder: Path) -> AsyncIterator[tuple[str, Path]]:
    certificate, key = a_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    door = await asyncio.start_server(to_redis(redis), "127.0.0.1", 0, ssl=context)
    async with door:
        port = door.sockets[0].getsockname()[1]
        password = redis.url.partition("@")[0].rpartition(":")[2]
        yield f"rediss://:{password}@127.0.0.1:{port}/0", certificate


async def test_redis_is_reached_over_tls_if_its_certificate_is_good(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with over_tls(redis, tmp_path) as (url, certificate), redis.client() as client:
        async with RateLimits(url, timeout_seconds=PATIENT) as limits:
            assert (await limits.hit(TEN, "x")).is_within
            assert await client.dbsize() == 0
        trusting = f"{url}?ssl_ca_certs={certificate}"
        async with RateLimits(trusting, timeout_seconds=PATIENT) as limits:
            assert (await limits.hit(TEN, "x")).is_within
            assert await client.dbsize() == 1


async def test_redis_is_reached_over_a_unix_socket(redis: RedisServer, tmp_path: Path) -> None:
    password = redis.url.partition("@")[0].rpartition(":")[2]
    path = tmp_path / "redis.sock"
    async with await asyncio.start_unix_server(to_redis(redis), path), redis.client() as client:
        address = f"unix://:{password}@{path}?db=3"
        async with RateLimits(address, timeout_seconds=PATIENT) as limits:
            assert (await limits.hit(TEN, "x")).is_within
        await client.select(3)
        assert await client.dbsize() == 1


async def test_the_state_of_redis_is_known_without_any_request(redis: RedisServer) -> None:
    async with RateLimits(redis.url, timeout_seconds=SOON) as limits:
        watching = asyncio.create_task(limits.watch(SOON))

        async def is_away() -> bool:
            return limits.is_redis_away and value("ltzd_cache_redis_unavailable") == 1

        async def is_back() -> bool:
            return not limits.is_redis_away and value("ltzd_cache_redis_unavailable") == 0

        with redis.hanging():
            await until(is_away)
        await until(is_back)
        watching.cancel()


@pytest.mark.parametrize(
    ("refuse", "accept"),
    [
        pytest.param("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", id="a-replica"),
        pytest.param("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", id="full"),
        pytest.param(
            "ACL SETUSER default -evalsha", "ACL SETUSER default +evalsha", id="no-rights"
        ),
    ],
)
async def test_a_redis_that_answers_and_takes_no_hit_counts_as_away(
    redis: RedisServer, refuse: str, accept: str
) -> None:
    async with redis.client() as client, trying_often(redis) as limits:
        watching = asyncio.create_task(limits.watch(SOON))
        await client.execute_command(*refuse.split())
        try:
            with capture_logs() as logs:
                before = value("ltzd_cache_redis_errors_total")

                async def has_failed_often() -> bool:
                    await limits.hit(TEN, "a caller")
                    return value("ltzd_cache_redis_errors_total") > before + 5

                await until(has_failed_often)
            assert [line["event"] for line in logs] == ["redis.away"]
            await client.execute_command(*accept.split())

            async def is_back() -> bool:
                return not limits.is_redis_away

            await until(is_back)
        finally:
            await client.execute_command(*accept.split())
            watching.cancel()


async def test_a_node_of_a_redis_cluster_counts_as_away() -> None:
    """A cluster counts some hits and refuses others."""
    async with a_redis_server() as redis:
        await redis.stop()
        with (redis.folder / "redis" / "redis.conf").open("a") as configuration:
            configuration.write("cluster-enabled yes\n")
        await redis.start()
        async with (
            redis.client() as client,
            RateLimits(redis.url, timeout_seconds=PATIENT) as limits,
        ):
            await client.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))

            async def has_all_slots() -> bool:
                return b"cluster_state:ok" in await client.execute_command("CLUSTER", "INFO")

            await until(has_all_slots)
            with capture_logs() as logs:
                watching = asyncio.create_task(limits.watch(SOON))
                before = value("ltzd_cache_redis_errors_total")

                async def has_failed_often() -> bool:
                    await hits(limits, 20, "a caller")
                    return value("ltzd_cache_redis_errors_total") > before + 5

                await until(has_failed_often)
                watching.cancel()
            assert limits.is_redis_away
            assert [line for line in logs if line["event"] == "redis.back"] == []

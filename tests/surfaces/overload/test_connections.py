"""Connections: their number, slow heads and readers, and many requests at once on one of them."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from ltzd.http.admission.gate import Asker
from ltzd.http.app import build_app
from ltzd.http.connections import stream
from ltzd.http.connections.limit import ConnectionLimit
from ltzd.http.connections.pace import RefusalPace
from ltzd.http.connections.sweep import SlownessPolicy, Sweep
from ltzd.http.services import HttpPolicy
from ltzd.rules.admission import Urgency
from tests.support.clocks import ManualClock
from tests.support.loop_turns import counted_turns
from tests.support.surfaces.http_surface import FakeEvents, services_over, serving
from tests.support.waiting import until

HEALTH = b"GET /service-api/health HTTP/1.1\r\nHost: x\r\n\r\n"
DEBUG = b"GET /service-api/debug HTTP/1.1\r\nHost: x\r\n\r\n"


class Client:
    """A connection that sends bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def of(cls, url: str, sent: bytes = b"") -> "Client":
        client = cls(*await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2])))
        client.writer.write(sent)
        return client

    async def status(self) -> int:
        """The status of the next answer, whose body is read."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)
        length = head.lower().partition(b"content-length: ")[2].split(b"\r", 1)[0]
        await self.reader.readexactly(int(length))
        return int(head.split(b" ")[1])

    async def is_closed(self) -> bool:
        return await asyncio.wait_for(self.reader.read(1), 20) == b""

    def close(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def a_server(policy: HttpPolicy) -> AsyncIterator[tuple[str, Any]]:
    app = build_app(services_over(FakeEvents()), policy)
    async with serving(app) as url:
        yield url, app


async def until_true(claim: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return claim()

    await until(holds)


async def test_beyond_the_limit_the_connection_that_was_idle_longest_is_closed() -> None:
    async with a_server(HttpPolicy(max_connections=3)) as (url, app):
        clients = []
        for _ in range(3):
            clients.append(await Client.of(url, HEALTH))
            assert await clients[-1].status() == 200
        clients[0].writer.write(HEALTH)  # used again, so the second one is the oldest
        assert await clients[0].status() == 200
        newcomer = await Client.of(url, HEALTH)
        assert await newcomer.status() == 200
        assert await clients[1].is_closed()
        clients[0].writer.write(HEALTH)
        assert await clients[0].status() == 200
        for client in (*clients, newcomer):
            client.close()
        await until_true(lambda: len(app.ctx.connection_limit) == 0)


CHUNKED = (
    b"POST /service-api/manual-event HTTP/1.1\r\nHost: x\r\n"
    b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)


async def test_a_body_of_tiny_chunks_leaves_turns_of_the_event_loop() -> None:
    async with a_server(HttpPolicy()) as (url, _):
        client = await Client.of(url)
        with counted_turns() as turns:
            client.writer.write(CHUNKED + b"1\r\nx\r\n" * 1_600 + b"0\r\n\r\n")
            assert await client.status() == 400, "it is no JSON"
        assert turns.count >= 80
        client.writer.write(HEALTH)
        assert await client.status() == 200
        client.close()


@pytest.mark.parametrize(("size", "status"), [(1, 400), (512, 413)])
async def test_a_body_of_too_many_tiny_chunks_ends_its_connection(
    size: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger chunks may be more, and are all read before the answer."""
    monkeypatch.setattr(stream, "_MOST_CHUNKS", 20)
    async with a_server(HttpPolicy()) as (url, _):
        client = await Client.of(url)
        chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
        client.writer.write(CHUNKED + chunk * 30 + b"0\r\n\r\n")
        assert await client.status() == status
        if status == 400:
            assert await client.is_closed()
        else:
            client.writer.write(HEALTH)
            assert await client.status() == 200
        client.close()


class _Connection:
    """One connection, as the limit sees it."""

    def __init__(self, *, is_at_work: bool = False) -> None:
        self.is_at_work = is_at_work
        self.is_ended = False

    def end_now(self) -> None:
        self.is_ended = True


def test_an_address_with_more_than_its_part_makes_room_with_its_own() -> None:
    limit = ConnectionLimit(4)
    quiet = _Connection()
    greedy = [_Connection() for _ in range(4)]
    assert limit.opened(quiet, "10.0.0.1")
    for connection in greedy:
        assert limit.opened(connection, "10.0.0.2")
    assert not quiet.is_ended
    assert greedy[0].is_ended


def test_room_for_a_connection_costs_the_same_however_many_its_address_has() -> None:
    """A flood opens thousands in a second: a list of the others for each would be most of it."""
    limit = ConnectionLimit(20_000)
    for _ in range(19_999):
        limit.opened(_Connection(), "10.0.0.2")
    limit.opened(_Connection(), "10.0.0.1")
    peaks = []
    tracemalloc.start()
    try:
        for _ in range(10):  # the tables of some of them grow
            limit.all()[0].end_now = partial(limit.closed, limit.all()[0], "10.0.0.2")
            newcomer = _Connection()
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            assert limit.opened(newcomer, "10.0.0.2")
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert min(peaks) < 10_000


def test_a_connection_at_work_is_never_closed_for_another() -> None:
    limit = ConnectionLimit(2)
    assert limit.opened(_Connection(is_at_work=True), "10.0.0.1")
    assert limit.opened(_Connection(is_at_work=True), "10.0.0.1")
    assert not limit.opened(_Connection(), "10.0.0.2")
    assert len(limit) == 2


async def test_a_head_that_does_not_end_is_answered_with_408() -> None:
    async with a_server(HttpPolicy()) as (url, app):
        clock = ManualClock()
        sweep = Sweep(app.ctx.connection_limit, SlownessPolicy(), clock=clock)
        slow = await Client.of(url, b"POST /service-api/manual-event HTTP/1.1\r\nHost: x\r\n")
        idle = await Client.of(url, HEALTH)
        assert await idle.status() == 200
        await until_true(lambda: any(each.is_receiving for each in app.ctx.connection_limit.all()))
        await sweep.sweep()
        slow.writer.write(b"X-More: bytes do not buy time\r\n")
        await until_true(
            lambda: any(b"X-More" in each.recv_buffer for each in app.ctx.connection_limit.all())
        )
        clock.now += 20.0
        await sweep.sweep()
        assert await slow.status() == 408
        assert await slow.is_closed()
        slow.close()
        idle.writer.write(HEALTH)
        assert await idle.status() == 200
        idle.close()


@pytest.mark.parametrize("has_client_left", [True, False])
@pytest.mark.parametrize("begun", [b"GET /rel", HEALTH[:-2]], ids=["line", "headers"])
async def test_a_connection_that_ends_within_a_head_is_no_error(
    caplog: pytest.LogCaptureFixture, begun: bytes, *, has_client_left: bool
) -> None:
    async with a_server(HttpPolicy()) as (url, app):
        client = await Client.of(url, begun)
        limit = app.ctx.connection_limit
        await until_true(lambda: [each.is_receiving for each in limit.all()] == [True])
        (connection,) = limit.all()
        if has_client_left:
            client.close()
        else:
            connection.end_now()
        await until_true(lambda: connection.http is None)
        client.close()
    assert [line for line in caplog.records if line.levelname in {"ERROR", "CRITICAL"}] == []


async def test_a_head_that_a_stop_gives_up_at_its_very_end_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The time for clients and that of a stop at once end in the same moment."""
    async with a_server(HttpPolicy()) as (url, app):
        client = await Client.of(url, HEALTH[:-2])
        limit = app.ctx.connection_limit
        await until_true(lambda: [each.is_receiving for each in limit.all()] == [True])
        (connection,) = limit.all()
        connection.end_slow_request()
        connection.abort()
        await until_true(lambda: connection.http is None)
        client.close()
    assert [line for line in caplog.records if line.levelname in {"ERROR", "CRITICAL"}] == []


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
async def test_a_client_that_leaves_before_it_reads_a_response_is_no_error(
    caplog: pytest.LogCaptureFixture, method: bytes
) -> None:
    async with a_server(HttpPolicy()) as (url, app):
        client = await Client.of(url, HEALTH)
        assert await client.status() == 200
        (connection,) = app.ctx.connection_limit.all()
        connection.pause_writing()  # as the transport does while a client does not read
        client.writer.write(HEALTH.replace(b"GET", method))
        await until_true(lambda: connection.is_at_work)
        client.close()
        await until_true(lambda: connection.http is None)
    assert [line for line in caplog.records if line.levelname in {"ERROR", "CRITICAL"}] == []


async def test_an_aborted_connection_whose_client_does_not_read_is_awaited_no_more() -> None:
    """Sanic aborts it some seconds after its last answer, and asyncio tells of the end a turn
    later: a look at the connection in that turn ended the server.
    """
    async with a_server(HttpPolicy()) as (url, app):
        client = await Client.of(url, HEALTH)
        assert await client.status() == 200
        limit = app.ctx.connection_limit
        (connection,) = limit.all()
        connection.pause_writing()  # as the transport does while a client does not read
        connection.abort()
        assert connection.awaited is None
        await Sweep(limit, SlownessPolicy(), clock=ManualClock()).sweep()
        await until_true(lambda: len(limit) == 0)
        client.close()


async def test_an_aborted_connection_whose_rest_of_a_body_still_arrives_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The sweep aborts it while its bytes wait for the task that discards them."""
    head = b"POST /service-api/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n"
    async with a_server(HttpPolicy()) as (url, app):
        client = await Client.of(url, head)
        assert await client.status() == 404
        (connection,) = app.ctx.connection_limit.all()
        connection.data_received(b"x")
        connection.end_slow_request()
        await until_true(lambda: connection.http is None)
        client.close()
    assert [line for line in caplog.records if line.levelname in {"ERROR", "CRITICAL"}] == []


async def test_requests_that_do_not_arrive_hold_bounded_memory() -> None:
    async with a_server(HttpPolicy()) as (url, app):
        policy = SlownessPolicy(buffer_bytes=40_000)
        sweep = Sweep(app.ctx.connection_limit, policy, clock=ManualClock())
        head = b"GET /service-api/health HTTP/1.1\r\nHost: x\r\nX-Padding: " + b"a" * 25_000
        clients = [await Client.of(url, head) for _ in range(2)]
        limit = app.ctx.connection_limit
        await until_true(
            lambda: [len(each.recv_buffer) > 25_000 for each in limit.all()] == [True, True]
        )
        await sweep.sweep()
        await until_true(lambda: len(limit) == 1)
        for client in clients:
            client.close()


async def test_bodies_that_do_not_arrive_hold_bounded_memory() -> None:
    """A handler takes the pieces of a body out of the connection's buffer."""
    async with a_server(HttpPolicy()) as (url, app):
        policy = SlownessPolicy(buffer_bytes=300_000)
        sweep = Sweep(app.ctx.connection_limit, policy, clock=ManualClock())
        head = (
            b"POST /service-api/payment-webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 250000\r\n"
        )
        clients = [await Client.of(url, head + b"\r\n" + b"a" * 200_000) for _ in range(2)]
        limit = app.ctx.connection_limit
        await until_true(
            lambda: [each.kept_bytes >= 200_000 for each in limit.all()] == [True, True]
        )
        await sweep.sweep()
        await until_true(lambda: len(limit) == 1)
        for client in clients:
            client.writer.write(b"a" * 50_000)
        statuses = await asyncio.gather(
            *(client.status() for client in clients), return_exceptions=True
        )
        assert sum(isinstance(status, int) for status in statuses) == 1
        for client in clients:
            client.close()


async def test_many_requests_at_once_on_one_connection_let_others_between() -> None:
    async with a_server(HttpPolicy()) as (url, _):
        greedy = await Client.of(url, DEBUG * 300)
        assert await greedy.status() == 200
        modest = await Client.of(url, HEALTH)
        assert await modest.status() == 200
        for _ in range(299):
            assert await greedy.status() == 200
        greedy.close()
        modest.close()


class _HeldConnection:
    def __init__(self) -> None:
        self.is_open = True
        self.is_read = True
        self.is_late = False
        self.late_reads = 0

    def hold(self) -> None:
        self.is_read = False

    def read_again(self) -> None:
        self.is_read = self.is_late = True
        self.late_reads += 1

    def mark_in_time(self) -> None:
        self.is_late = False


async def test_refused_connections_are_read_again_in_turns_of_their_parties() -> None:
    pace = RefusalPace(lambda: True, lambda peer: peer == "10.0.0.9")
    flood = [_HeldConnection() for _ in range(500)]
    other, proxied = _HeldConnection(), _HeldConnection()
    for connection in flood:
        pace.hold(connection, "10.0.0.1", Asker(Urgency.QUICK, "flood", "1"))
    pace.hold(other, "10.0.0.2", Asker(Urgency.QUICK, "other", "1"))
    pace.hold(proxied, "10.0.0.9", Asker(Urgency.QUICK, "other", "1"))
    assert proxied.is_read
    running = asyncio.create_task(pace.run())
    await until_true(lambda: other.is_read)
    assert other.late_reads == 1, "what waited in the kernel comes then"
    assert not all(connection.is_read for connection in flood)
    running.cancel()
    await asyncio.wait({running})
    assert all(connection.is_read for connection in flood)
    await until_true(lambda: not any(connection.is_late for connection in (other, *flood)))


async def test_refused_connections_that_have_ended_take_no_turns() -> None:
    """A flood of new connections has them ended at the limit faster than they are read again."""
    pace = RefusalPace(lambda: True, lambda _peer: False)
    asker = Asker(Urgency.QUICK, "flood", "1")
    ended, open_ = [_HeldConnection() for _ in range(500)], _HeldConnection()
    for connection in (*ended, open_):
        pace.hold(connection, "10.0.0.1", asker)
    for connection in ended:
        connection.is_open = False
    running = asyncio.create_task(pace.run())
    await until_true(lambda: open_.is_read)
    running.cancel()
    await asyncio.wait({running})
    assert not any(connection.late_reads for connection in ended)

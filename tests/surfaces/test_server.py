"""The middleware and the server: ids, unknown paths, broken HTTP, starting and stopping."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from sanic.router import Router

from ltzd.actions.relayer.relayer import RelayPolicy
from ltzd.errors import Misconfigured
from ltzd.http import server
from ltzd.http.app import build_app
from ltzd.http.server import listen, serve
from ltzd.http.services import HttpPolicy
from tests.support.surfaces.http_surface import (
    FakeEvents,
    RunningSurfaces,
    a_surface,
    an_event,
    services_over,
)
from tests.support.waiting import until


@pytest_asyncio.fixture
async def surface() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


async def ask(
    surface: RunningSurfaces, method: str, path: str, **options: Any
) -> tuple[int, Any, Any]:
    async with surface.client.request(method, surface.url + path, **options) as answer:
        raw = await answer.read()
        return answer.status, json.loads(raw) if raw else None, answer.headers


async def say(surface: RunningSurfaces, raw: bytes) -> bytes:
    """Send bytes to the server's port. Returns everything it sends until it closes."""
    port = int(surface.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
        await writer.wait_closed()


def date_of(head: bytes) -> bytes:
    return head.partition(b"\r\nDate: ")[2].partition(b"\r\n")[0]


async def test_unknown_paths_answer_in_the_envelope_of_their_surface(
    surface: RunningSurfaces,
) -> None:
    for path in (
        "/service-api/nothing",
        "/service-api",
        "/service-api/",
        "/service-api/events/a/b",
    ):
        status, answer, _ = await ask(surface, "GET", path)
        assert (status, answer) == (404, {"success": False, "error": "Unknown endpoint"})
    for path in (
        "/",
        "/relay/a/b",
        "/relayed",
        "/service-apis",
        "/%2e%2e/x",
        "//",
        "/docs/nothing",
    ):
        status, answer, _ = await ask(surface, "POST", path, data=b"x")
        assert (status, answer) == (404, {"error": "Unknown endpoint", "code": "NOT_FOUND"})


async def test_a_head_that_is_too_large_is_refused_in_the_envelope_of_its_surface(
    surface: RunningSurfaces,
) -> None:
    for path, mark in (
        (b"/service-api/debug?x=" + b"a" * 20_000, b'"success":false'),
        (b"/service-api/health", b'"success":false'),
        (b"/docs", b'"code":"HEADERS_TOO_LARGE"'),
    ):
        head = b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 44_000 + b"\r\n\r\n"
        answer = await say(surface, head)
        assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
        assert mark in answer


@pytest.mark.parametrize("length", [32_700, 40_000])
async def test_a_url_that_is_too_long_is_414_in_the_envelope_of_its_surface(
    surface: RunningSurfaces, length: int
) -> None:
    for path, mark in ((b"/service-api/debug", b'"success":false'), (b"/docs", b"URI_TOO_LONG")):
        url = path + b"?" + b"a" * length
        answer = await say(
            surface, b"GET " + url + b" HTTP/1.1\r\nHost: x\r\nX-A: " + b"b" * 99 + b"\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 414 ")
        assert mark in answer
        assert b"Request URL too long" in answer


LENGTH, CHUNKED = b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("line", "headers", "body", "fault"),
    [
        (b"", LENGTH * 2, b"{}", "Content-Length must be given once"),
        (b"", CHUNKED * 2, b"", "Transfer-Encoding must be given once"),
        (
            b"",
            LENGTH + CHUNKED,
            b"0\r\n\r\n",
            "Content-Length and Transfer-Encoding exclude each other",
        ),
        (
            b"",
            b"Content-Length: 2x\r\n",
            b"{}",
            "Content-Length must be a whole number, and Transfer-Encoding chunked",
        ),
        (b"", CHUNKED, b"zz\r\n", "the body's chunked encoding is broken"),
        ("?x=é".encode(), LENGTH, b"{}", "the URL may hold only ASCII characters"),
        (b" x", LENGTH, b"{}", "its first line must be a method, a URL and HTTP/1.1"),
    ],
    ids=["two lengths", "two codings", "both", "length", "chunk", "url", "line"],
)
async def test_a_request_that_cannot_be_read_is_told_which_rule_it_breaks(
    surface: RunningSurfaces, line: bytes, headers: bytes, body: bytes, fault: str
) -> None:
    answer = await say(
        surface,
        b"POST /relay" + line + b" HTTP/1.1\r\nHost: x\r\n"
        b"Authorization: Bearer x\r\nContent-Type: application/json\r\n" + headers + b"\r\n" + body,
    )
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {
        "error": f"Malformed request: {fault}",
        "code": "BAD_REQUEST",
    }


async def test_a_wrong_method_is_405_and_says_which_are_right(surface: RunningSurfaces) -> None:
    status, answer, headers = await ask(surface, "GET", "/service-api/manual-event")
    assert (status, answer) == (405, {"success": False, "error": "Method not allowed"})
    assert headers["Allow"] == "OPTIONS, POST"
    status, _, headers = await ask(surface, "DELETE", "/service-api/health")
    assert (status, headers["Allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_head_answers_like_get_without_a_body(surface: RunningSurfaces) -> None:
    status, answer, headers = await ask(surface, "HEAD", "/service-api/health")
    assert (status, answer) == (200, None)
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize("path", ["/service-api/health", "/service-api/nothing"])
async def test_head_has_the_head_of_get_byte_by_byte(surface: RunningSurfaces, path: str) -> None:
    """ltzd writes an ordinary reply itself, and Sanic writes one without a body."""
    request = (
        "{} " + path + " HTTP/1.1\r\nHost: ltzd\r\nConnection: close\r\nX-Request-Id: id\r\n\r\n"
    )

    async def heads() -> list[bytes]:
        answers = [
            await say(surface, request.format(method).encode()) for method in ("GET", "HEAD")
        ]
        return [answer.partition(b"\r\n\r\n")[0] for answer in answers]

    get, head = await heads()
    while date_of(get) != date_of(head):  # a second has passed between the two
        get, head = await heads()
    assert get == head
    assert get.count(b"\r\n") > 5


async def test_a_sane_request_id_comes_back_and_others_are_replaced(
    surface: RunningSurfaces,
) -> None:
    for given, is_kept in (("abc-1.2_3", True), ("a" * 65, False), ("a b", False), ("é", False)):
        _, _, headers = await ask(
            surface, "GET", "/service-api/health", headers={"X-Request-Id": given}
        )
        assert (headers["X-Request-Id"] == given) is is_kept
    ids = [(await ask(surface, "GET", "/nowhere"))[2]["X-Request-Id"] for _ in range(3)]
    assert len(set(ids)) == 3


POST = b"POST /service-api/manual-event HTTP/1.1\r\nHost: x\r\n"
CLOSING = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n",
        b"rubbish\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET http://" + CLOSING,
        b"GET http://x" + CLOSING,
        b"POST http://x?y" + CLOSING,
        b"GET *" + CLOSING,
        b"GET //" + CLOSING,
        b"GET " + b"/a" * 3_000 + CLOSING,
        b"\xff\xfe HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 33_000 + b"\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n{",
        POST + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        POST + b"Expect: tea\r\nContent-Length: 2\r\n\r\n{}",
        POST + b"Content-Length: 5000000\r\n\r\n{}",
    ],
)
async def test_broken_http_gets_a_json_answer_below_500(
    surface: RunningSurfaces, raw: bytes
) -> None:
    received = await say(surface, raw)
    head, _, body = received.partition(b"\r\n\r\n")
    assert 400 <= int(head.split(b" ")[1]) < 500, received
    assert json.loads(body)["error"]
    assert b"Traceback" not in received
    assert surface.events.requests == []


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"OPTIONS", b"POST"])
@pytest.mark.parametrize("path", [b"/service-api/health", b"/nowhere"])
@pytest.mark.parametrize("second", [b"Host: shop.example", b"hOST:", b"Host: evil.example"])
async def test_two_host_headers_are_refused(
    surface: RunningSurfaces, method: bytes, path: bytes, second: bytes
) -> None:
    """RFC 9112 3.2: a proxy may have read the other header."""
    hosts = b"Host: shop.example\r\n" + second + b"\r\n"
    rest = b"Origin: https://shop.example\r\nConnection: close\r\n\r\n"
    received = await say(surface, method + b" " + path + b" HTTP/1.1\r\n" + hosts + rest)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b"Access-Control-Allow-Origin: https://shop.example\r\n" in received
    assert b"X-Request-Id: " in received
    if method != b"HEAD":
        assert b'"error":"Malformed request: the Host header must be given once"' in received


async def test_long_paths_and_hosts_stay_in_no_cache_of_the_router(
    surface: RunningSurfaces,
) -> None:
    health, event = "/service-api/health", "/service-api/events/"
    assert (await ask(surface, "GET", health))[0] == 200
    before = Router.get.cache_info().currsize
    for number in range(10):
        assert (await ask(surface, "GET", event + str(number) * 20_000))[0] == 400
        long = f"{number}.{'a' * 20_000}"
        assert (await ask(surface, "GET", health, headers={"Host": long}))[0] == 400
        assert (await ask(surface, "GET", health, headers={"Host": f"{number}.example"}))[0] == 200
    assert Router.get.cache_info().currsize == before


async def test_a_client_that_hangs_up_early_hurts_nobody(surface: RunningSurfaces) -> None:
    port = int(surface.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(POST + b"Content-Length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    status, _, _ = await ask(surface, "GET", "/service-api/health")
    assert status == 200


async def test_a_client_that_leaves_while_we_work_is_no_error(
    surface: RunningSurfaces, caplog: pytest.LogCaptureFixture
) -> None:
    surface.events.gate = asyncio.Event()
    port = int(surface.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(an_event()).encode()
    writer.write(POST + b"Content-Type: application/json\r\n")
    writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    await until(lambda: _is(bool(surface.events.requests)))
    writer.close()
    await writer.wait_closed()
    surface.events.gate.set()
    status, _, _ = await ask(surface, "GET", "/service-api/health")
    assert status == 200
    assert [line for line in caplog.records if line.levelname in {"ERROR", "CRITICAL"}] == []


async def test_a_body_that_comes_in_pieces_is_read_whole(surface: RunningSurfaces) -> None:
    port = int(surface.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(an_event()).encode()
    writer.write(POST + b"Content-Type: application/json\r\nExpect: 100-continue\r\n")
    writer.write(b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
    assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
    assert await reader.readline() == b"\r\n"
    for at in range(0, len(body), 20):
        writer.write(body[at : at + 20])
        await writer.drain()
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()
    assert len(surface.events.requests) == 1


async def test_a_body_that_never_comes_is_given_up() -> None:
    async with a_surface(HttpPolicy(body_seconds=0.05, grace_seconds=2.0)) as surface:
        received = await say(surface, POST + b"Connection: close\r\nContent-Length: 10\r\n\r\n{")
        assert received.startswith(b"HTTP/1.1 408")
        assert surface.events.requests == []


def an_app(events: FakeEvents, policy: HttpPolicy) -> Any:
    return build_app(services_over(events), policy)


async def test_stopping_lets_a_request_finish_and_takes_no_new_ones() -> None:
    events = FakeEvents(gate=asyncio.Event())
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    app = an_app(events, HttpPolicy(grace_seconds=5))
    server = asyncio.create_task(serve(app, "127.0.0.1", 0, stop, on_listening=port.set_result))
    url = f"http://127.0.0.1:{await port}/service-api"
    async with aiohttp.ClientSession() as client:
        async with client.get(f"{url}/debug") as idle:  # keeps its connection open
            assert idle.status == 200
        call = asyncio.create_task(client.post(f"{url}/manual-event", json=an_event()))
        await until(lambda: _is(bool(events.requests)))
        stop.set()
        await until(lambda: _refuses(port.result()))
        assert events.gate is not None
        events.gate.set()
        async with await call as answer:
            assert answer.status == 200
            assert answer.headers["Connection"] == "close"
        await asyncio.wait_for(server, 2)


async def test_stopping_waits_for_a_request_that_waits_for_a_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = 0.0
    looks: list[float] = []

    def clock() -> float:
        looks.append(passed)
        return passed

    monkeypatch.setattr(server, "loop_time", clock)
    events = FakeEvents(gate=asyncio.Event())
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    app = an_app(events, HttpPolicy())
    serving = asyncio.create_task(serve(app, "127.0.0.1", 0, stop, on_listening=port.set_result))
    url = f"http://127.0.0.1:{await port}/service-api/manual-event"
    async with aiohttp.ClientSession() as client:
        call = asyncio.create_task(client.post(url, json=an_event()))
        await until(lambda: _is(bool(events.requests)))
        stop.set()
        await until(lambda: _refuses(port.result()))
        passed = RelayPolicy().wait_seconds
        await until(lambda: _is(looks.count(passed) > 1 or serving.done()))
        assert events.gate is not None
        events.gate.set()
        async with await call as answer:
            assert answer.status == 200
        await serving


async def test_stopping_waits_a_few_seconds_only_for_the_rest_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stranger needs no credential to send half a body; the relay beside it goes on."""
    passed = 0.0
    monkeypatch.setattr(server, "loop_time", lambda: passed)
    events = FakeEvents(gate=asyncio.Event())
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    app = an_app(events, HttpPolicy(body_seconds=3_600.0))
    serving = asyncio.create_task(serve(app, "127.0.0.1", 0, stop, on_listening=port.set_result))
    reader, writer = await asyncio.open_connection("127.0.0.1", await port)
    writer.write(POST + b"Content-Length: 10\r\n\r\n{")
    url = f"http://127.0.0.1:{port.result()}/service-api/manual-event"
    async with aiohttp.ClientSession() as client:
        call = asyncio.create_task(client.post(url, json=an_event()))
        limit = app.ctx.connection_limit
        await until(lambda: _is(any(each.is_receiving for each in limit.all())))
        await until(lambda: _is(bool(events.requests)))
        stop.set()
        await until(lambda: _refuses(port.result()))
        assert any(each.is_receiving for each in limit.all())
        passed = server.CLIENT_SECONDS
        assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.1 408")
        assert not serving.done()
        assert events.gate is not None
        events.gate.set()
        async with await call as answer:
            assert answer.status == 200
        await serving
    writer.close()


async def test_stopping_at_once_waits_a_few_seconds_of_its_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "STOP_NOW_SECONDS", 0.0)
    events = FakeEvents(gate=asyncio.Event())
    stop, stop_now = asyncio.Event(), asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    app = an_app(events, HttpPolicy(grace_seconds=3_600.0))
    serving = asyncio.create_task(
        serve(app, "127.0.0.1", 0, stop, on_listening=port.set_result, stop_now=stop_now)
    )
    url = f"http://127.0.0.1:{await port}/service-api/manual-event"
    async with aiohttp.ClientSession() as client:
        call = asyncio.create_task(client.post(url, json=an_event()))
        await until(lambda: _is(bool(events.requests)))
        stop.set()
        await until(lambda: _refuses(port.result()))
        assert not serving.done()
        stop_now.set()
        await asyncio.wait_for(serving, 60)
        with pytest.raises(aiohttp.ClientError):
            await call


async def test_stopping_waits_no_longer_than_its_grace() -> None:
    events = FakeEvents(gate=asyncio.Event())
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    app = an_app(events, HttpPolicy(grace_seconds=0.1))
    server = asyncio.create_task(serve(app, "127.0.0.1", 0, stop, on_listening=port.set_result))
    url = f"http://127.0.0.1:{await port}/service-api/manual-event"
    async with aiohttp.ClientSession() as client:
        call = asyncio.create_task(client.post(url, json=an_event()))
        await until(lambda: _is(bool(events.requests)))
        stop.set()
        await asyncio.wait_for(server, 2)
        with pytest.raises(aiohttp.ClientError):
            await call


async def _is(fact: bool) -> bool:
    return fact


async def _refuses(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return True
    writer.close()
    return False


async def test_an_occupied_port_is_a_sentence() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"Port {port} on 127.0.0.1 cannot be used"):
            await serve(an_app(FakeEvents(), HttpPolicy()), "127.0.0.1", port, asyncio.Event())


async def test_a_port_that_another_start_takes_at_the_same_time_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two programs can bind a port that nobody listens on, and one of them can listen."""
    bind, others = server._bind, []

    def bind_beside_another(host: str, port: int) -> socket.socket:
        bound = bind(host, port)
        others.append(bind(host, bound.getsockname()[1]))
        others[-1].listen()
        return bound

    monkeypatch.setattr(server, "_bind", bind_beside_another)
    with pytest.raises(Misconfigured, match=r"Port 0 on 127\.0\.0\.1 cannot be used"):
        listen("127.0.0.1", 0)
    for other in others:
        other.close()


async def test_an_address_of_another_machine_is_a_sentence() -> None:
    with pytest.raises(Misconfigured, match=r"Port 8000 on 192\.0\.2\.1 cannot be used"):
        listen("192.0.2.1", 8000)
    with pytest.raises(Misconfigured, match="is not an address of this machine"):
        listen("no-such-host.invalid", 8000)

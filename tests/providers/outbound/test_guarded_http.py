"""The guard against request forgery: addresses, answers and time limits, over real HTTP."""

import asyncio
import datetime
import gzip
import ipaddress
import itertools
import socket
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from ltzd.providers.outbound import guarded_connector, guarded_posts
from ltzd.providers.outbound.guarded_http import (
    GuardedHttpClient,
    GuardPolicy,
    HttpResponse,
    RequestFailed,
)
from ltzd.providers.outbound.public_addresses import is_public
from tests.support.services.web_servers import Conversation, raw_server, sending
from tests.support.waiting import Stopwatch, until

PUBLIC = "93.184.216.34"
STRICT = GuardPolicy(timeout_seconds=2.0)
DEV = GuardPolicy(allow_loopback=True, timeout_seconds=2.0)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Names:
    """A fake resolver: each look-up of a name takes its next answer; the last one is repeated."""

    def __init__(self, **answers: list[Sequence[str]]) -> None:
        self._answers = {
            name.replace("_", "."): list(addresses) for name, addresses in answers.items()
        }
        self.resolved: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.resolved.append(host)
        if host not in self._answers:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        addresses = self._answers[host]
        return addresses.pop(0) if len(addresses) > 1 else addresses[0]


@asynccontextmanager
async def guarded(
    policy: GuardPolicy = DEV, resolve: Any = None, **changed: Any
) -> AsyncIterator[GuardedHttpClient]:
    client = GuardedHttpClient(replace(policy, **changed), resolve)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def serving(handler: Handler, host: str = "127.0.0.1", **options: Any) -> AsyncIterator[int]:
    """Gives the port of a web server."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, host, 0, **options).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def hello(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"hello": "world"})


Ask = Callable[[GuardedHttpClient, str], Coroutine[Any, Any, HttpResponse]]


@pytest.fixture(params=["request", "post_for_head"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Both ways of asking: with aiohttp, and with the guard's own posts."""
    if request.param == "request":
        return lambda http, url: http.request("GET", url)
    return lambda http, url: http.post_for_head(url, body=b"body", headers={})


async def reason_of(asking: Awaitable[HttpResponse]) -> str:
    with pytest.raises(RequestFailed) as caught:
        await asking
    return caught.value.reason


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> type["RecordedSocket"]:
    """Records and refuses the guard's connections, so that no test reaches the internet."""
    RecordedSocket.connected_to = []
    RecordedSocket.leads_to = None
    known = {name: getattr(socket, name) for name in dir(socket) if name.isupper()}
    fake = SimpleNamespace(**{**known, "socket": RecordedSocket})
    monkeypatch.setattr(guarded_connector, "socket", fake)
    return RecordedSocket


class RecordedSocket(socket.socket):
    connected_to: list[Any] = []  # noqa: RUF012 - the fixture makes a new one for each test
    leads_to: tuple[str, int] | None = None
    """The real target, as a packet filter on the way could change it."""

    def connect(self, address: Any) -> None:
        self.connected_to.append(address[:2])
        if self.leads_to is None:
            raise ConnectionRefusedError
        super().connect(self.leads_to)


# --- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200"),
        *("100.127.255.255", "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.169.254"),
        *("169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192"),
        *("192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1"),
        *("198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255"),
        *("240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::7f00:1", "::127.0.0.1", "::5db8:d822"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:7f00:1", f"::ffff:{PUBLIC}"),
        *("::ffff:0:127.0.0.1", f"::ffff:0:{PUBLIC}"),
        *("64:ff9b::7f00:1", "64:ff9b::5db8:d822", "64:ff9b:1::a00:1"),
        *("2002:7f00:1::", "2002:5db8:d822::1", "2001:0:5db8:d822::1", "2001::1", "2001:2::1"),
        *("2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1", "5f00::1", "100::1", "4000::1"),
        *("fc00::1", "fd00:ec2::254", "fd12:3456:789a::1", "fe80::1", "fe80::1%eth0", "fec0::1"),
        *("febf::1", "ff02::1", "ff0e::1", "2606:2800:220:1::1%eth0"),
        *(
            "",
            "x",
            "127.1",
            "0x7f.1",
            "2130706433",
            "0177.0.0.1",
            "1.1.1",
            "1.1.1.1 ",
            "1.1.1.1/32",
        ),
    ],
)
def test_an_address_that_is_not_of_the_internet_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *(PUBLIC, "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0"),
        *("126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255"),
        *("172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0"),
        *("223.255.255.255", "168.63.129.15"),
        *("2606:2800:220:1:248:1893:25c8:1946", "2a00:1450:4001:80e::200e", "2001:4860:4860::8888"),
    ],
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


def test_nothing_that_python_calls_private_is_public() -> None:
    edges = [
        network[place]
        for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
        for network in [ipaddress.ip_network(text)]
        for place in (0, 1, -1)
    ]

    assert [str(edge) for edge in edges if is_public(str(edge))] == []


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"],
)
@pytest.mark.parametrize("others", [[], [PUBLIC], [PUBLIC, "1.1.1.1"]])
async def test_one_bad_address_refuses_the_whole_name(
    ask: Ask, address: str, others: list[str], sockets: type[RecordedSocket]
) -> None:
    for addresses in ([*others, address], [address, *others]):
        async with guarded(STRICT, Names(api_example=[addresses])) as http:
            reason = await reason_of(ask(http, "https://api.example/"))
        assert reason == "an address of the host is not allowed"
    assert sockets.connected_to == []


async def test_a_name_without_an_address_is_a_failure(ask: Ask) -> None:
    async with guarded(STRICT, Names(api_example=[[]])) as http:
        assert await reason_of(ask(http, "https://api.example/")) == (
            "an address of the host is not allowed"
        )
        assert await reason_of(ask(http, "https://other.example/")) == ("ClientConnectorDNSError")


async def test_the_connection_goes_to_the_address_that_was_judged(
    ask: Ask,
    sockets: type[RecordedSocket],
) -> None:
    names = Names(api_example=[[PUBLIC], ["127.0.0.1"]])
    async with guarded(STRICT, names) as http:
        assert await reason_of(ask(http, "https://api.example/")) == "ClientConnectorError"
        assert sockets.connected_to == [(PUBLIC, 443)]
        assert names.resolved == ["api.example"]

        again = await reason_of(ask(http, "https://api.example/"))

    assert again == "an address of the host is not allowed"
    assert sockets.connected_to == [(PUBLIC, 443)]
    assert names.resolved == ["api.example"] * 2


async def test_a_name_that_means_another_machine_a_moment_later_is_resolved_once(ask: Ask) -> None:
    reached = []

    async def answer(request: web.Request) -> web.StreamResponse:
        reached.append(request.transport and request.transport.get_extra_info("sockname")[0])
        return web.json_response({})

    names = Names(api_localhost=[["127.0.0.1"], ["127.0.0.2"]])
    async with serving(answer, "0.0.0.0") as port, guarded(DEV, names) as http:
        await ask(http, f"http://api.localhost:{port}/")

    assert reached == ["127.0.0.1"]
    assert names.resolved == ["api.localhost"]


async def test_a_connection_that_leads_elsewhere_is_dropped_before_the_request(
    ask: Ask,
    sockets: type[RecordedSocket],
) -> None:
    paths = []

    async def answer(request: web.Request) -> web.StreamResponse:
        paths.append(request.path)
        return web.Response()

    async with serving(answer) as port:
        sockets.leads_to = ("127.0.0.1", port)
        policy = replace(STRICT, schemes=frozenset({"http"}))
        async with guarded(policy, Names(api_example=[[PUBLIC]])) as http:
            reason = await reason_of(ask(http, "http://api.example/"))

    assert reason == "the connection leads to an address that is not allowed"
    assert sockets.connected_to == [(PUBLIC, 80)]
    assert paths == []


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "10.1.2.3", "169.254.169.254", "0.0.0.0", "0", "127.1", "0x7f.1"),
        *("0x7f000001", "0177.0.0.1", "017700000001", "2130706433", "127.0.0.1.", "127.000.000.1"),
        *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:1]"),
        *("[fe80::1%25eth0]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[fd00:ec2::254]"),
        *("localhost", "localhost.", "LOCALHOST", "api.localhost"),
        *("%31%32%37.0.0.1", "127\u30020\u30020\u30021", "\uff11\uff12\uff17.0.0.1"),
    ],
)
async def test_this_machine_is_not_reached_in_any_spelling(
    ask: Ask, host: str, sockets: type[RecordedSocket]
) -> None:
    policy = replace(STRICT, schemes=frozenset({"http", "https"}))
    async with guarded(policy) as http:
        for scheme in ("http", "https"):
            await reason_of(ask(http, f"{scheme}://{host}/"))
    assert sockets.connected_to == []


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "127.1", "[::ffff:127.0.0.1]"])
async def test_even_where_loopback_is_allowed_its_odd_spellings_are_not(
    ask: Ask, host: str
) -> None:
    async with serving(hello) as port, guarded(DEV) as http:
        await reason_of(ask(http, f"http://{host}:{port}/"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LocalHost", "api.localhost"])
async def test_loopback_is_reached_where_it_is_allowed(host: str) -> None:
    names = Names(
        localhost=[["127.0.0.1"]], api_localhost=[["127.0.0.1"]], LocalHost=[["127.0.0.1"]]
    )
    async with serving(hello) as port, guarded(DEV, names) as http:
        answer = await http.request("GET", f"http://{host}:{port}/")

    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.body == b'{"hello": "world"}'


async def test_the_machines_own_resolver_is_asked_where_no_other_is_given() -> None:
    async with serving(hello) as port, guarded(DEV) as http:
        assert (await http.request("GET", f"http://localhost:{port}/")).status == 200
        assert await reason_of(http.request("GET", "https://" + "a" * 63 + ".invalid/"))


async def test_where_loopback_is_allowed_other_private_addresses_are_not(ask: Ask) -> None:
    async with guarded(DEV, Names(api_localhost=[["127.0.0.1", "10.0.0.1"]])) as http:
        assert await reason_of(ask(http, "http://api.localhost:1/")) == (
            "an address of the host is not allowed"
        )


# --- URLs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://api.example/", "the scheme http is not allowed"),
        ("ftp://api.example/", "the URL must be an http or https URL"),
        ("file:///etc/passwd", "the URL must be an http or https URL"),
        ("gopher://api.example/", "the URL must be an http or https URL"),
        ("//api.example/", "the URL must be an http or https URL"),
        ("https://ann:pw@api.example/", "the URL must be a URL with a host and without a user"),
        ("https://api.example@127.0.0.1/", "the URL must be a URL with a host and without a user"),
        ("https://api.example:22/", "port 22 is not allowed"),
        ("https://api.example:6379/", "port 6379 is not allowed"),
        ("https://api.example:0/", "port 0 is not allowed"),
        ("https://api.example:99999/", "the URL must be a valid URL"),
        ("https://api.example\\@127.0.0.1/", "the URL must not hold spaces, control"),
        ("https://api.example/\r\nX-A: 1", "the URL must not hold spaces, control"),
        ("https://api.example/é", "the URL's host can be read in two ways"),
        ("https://bücher.example/", "the URL's host can be read in two ways"),
        ("https://api.example/" + "a" * 3000, "the URL must have at most 2048 characters"),
    ],
)
async def test_a_url_beyond_the_policy_is_not_even_looked_up(url: str, reason: str) -> None:
    names = Names()
    async with guarded(STRICT, names) as http:
        assert (await reason_of(http.request("GET", url))).startswith(reason)
    assert names.resolved == []


async def test_a_policy_may_allow_other_schemes_and_ports(sockets: type[RecordedSocket]) -> None:
    policy = GuardPolicy(schemes=frozenset({"http"}), ports=frozenset({8080}))
    async with guarded(policy, Names(api_example=[[PUBLIC]])) as http:
        await reason_of(http.request("GET", "http://api.example:8080/"))
        assert (
            await reason_of(http.request("GET", "http://api.example/")) == "port 80 is not allowed"
        )
    assert sockets.connected_to == [(PUBLIC, 8080)]


async def test_what_is_asked_goes_over_the_wire_as_it_is_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    requests = []

    async def answer(request: web.Request) -> web.StreamResponse:
        requests.append((request.raw_path, dict(request.headers), await request.read()))
        response = web.Response(text="x")
        response.set_cookie("session", "1")
        return response

    async with serving(answer) as port, guarded() as http:
        url = f"http://127.0.0.1:{port}/a%2fb/%7e/../c?x=%20{{}}&y=0xAb"
        await http.request("POST", url, body=b"{}", headers={"Content-Type": "application/json"})
        await http.request("GET", url)

    assert [path for path, _, _ in requests] == ["/a%2fb/%7e/../c?x=%20{}&y=0xAb"] * 2
    assert [body for _, _, body in requests] == [b"{}", b""]
    headers = requests[1][1]
    assert headers.pop("User-Agent").startswith("ltzd/")
    assert headers == {
        "Host": f"127.0.0.1:{port}",
        "Accept-Encoding": "identity",
        "Accept": "*/*",
        "Connection": "close",
    }


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_a_failure_and_is_not_followed(status: int) -> None:
    paths = []

    async def answer(request: web.Request) -> web.StreamResponse:
        paths.append(request.path)
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    async with serving(answer) as port, guarded() as http:
        reason = await reason_of(http.request("GET", f"http://127.0.0.1:{port}/"))

    assert reason == f"status {status}: redirects are not followed"
    assert paths == ["/"]


@pytest.mark.parametrize("status", [200, 204, 400, 404, 418, 500, 503])
async def test_any_other_status_is_the_callers_to_judge(status: int) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status)

    async with serving(answer) as port, guarded() as http:
        assert (await http.request("GET", f"http://127.0.0.1:{port}/")).status == status


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: Application/JSON; charset=utf-8\r\n"
TOO_LONG = "the body is longer than 65536 bytes"


async def test_a_body_of_64_kib_is_read_and_not_a_byte_more() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"a" * int(request.query["length"]))

    async with serving(answer) as port, guarded() as http:
        url = f"http://127.0.0.1:{port}/?length="
        assert len((await http.request("GET", url + "65536")).body) == 65_536
        assert await reason_of(http.request("GET", url + "65537")) == TOO_LONG


@pytest.mark.parametrize(
    "framing",
    [b"Transfer-Encoding: chunked\r\n\r\n", b"Connection: close\r\n\r\n"],
    ids=["chunked", "until the connection ends"],
)
async def test_ten_megabytes_of_unknown_length_are_left_where_they_are(framing: bytes) -> None:
    sent = 0

    async def converse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(HEAD + framing)
        for _ in range(160):
            writer.write(b"10000\r\n" + b"a" * 65_536 + b"\r\n")
            await writer.drain()
            sent += 65_536

    async with raw_server(converse) as port, guarded(timeout_seconds=30) as http:
        assert await reason_of(http.request("GET", f"http://127.0.0.1:{port}/")) == TOO_LONG

    # As much as the buffers of both sockets hold, not the whole body.
    assert sent < 160 * 65_536


async def test_a_length_that_is_too_much_is_refused_before_the_body() -> None:
    converse = sending(HEAD + b"Content-Length: 10485760\r\n\r\n")
    async with raw_server(converse) as port, guarded() as http:
        assert await reason_of(http.request("GET", f"http://127.0.0.1:{port}/")) == TOO_LONG


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "identity, gzip", "x"])
async def test_a_compressed_body_is_refused_and_not_unpacked(encoding: str) -> None:
    bomb = gzip.compress(bytes(10 << 20))

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"Content-Encoding": encoding})

    async with serving(answer) as port, guarded() as http:
        reason = await reason_of(http.request("GET", f"http://127.0.0.1:{port}/"))

    assert reason == "the body is compressed, although the request allows no compression"


async def test_a_transfer_coding_is_not_unpacked_either() -> None:
    bomb = gzip.compress(bytes(10 << 20))
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(bomb), bomb)
    converse = sending(HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk)
    async with raw_server(converse) as port, guarded() as http:
        try:
            answer = await http.request("GET", f"http://127.0.0.1:{port}/")
        except RequestFailed:
            return
    assert answer.body == bomb


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00" * 100,
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200\r\n",
        b"HTTP/1.1 999999 OK\r\n\r\n",
        HEAD + b"Content-Length: -5\r\n\r\n",
        HEAD + b"Content-Length: five\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        HEAD + b"Content-Length: 50\r\n\r\nabc",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
        HEAD + b"X: a\r\n" * 10_000 + b"\r\n",
        HEAD + b"no colon\r\n\r\n",
        HEAD + b"X: a\x00b\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_a_failure(answer: bytes) -> None:
    async with raw_server(sending(answer)) as port, guarded() as http:
        reason = await reason_of(http.request("GET", f"http://127.0.0.1:{port}/"))

    assert reason.isidentifier()


async def test_a_megabyte_of_interim_answers_is_a_failure(ask: Ask) -> None:
    """Decoding them takes ten times as long as their host needs to send them."""
    interim = b"HTTP/1.1 102 Processing\r\n\r\n" * 40_000
    answer = HEAD + b"Content-Length: 2\r\n\r\n{}"
    async with raw_server(sending(interim, answer)) as port, guarded(timeout_seconds=30) as http:
        reason = await reason_of(ask(http, f"http://127.0.0.1:{port}/"))

    assert reason in {"ServerDisconnectedError", "ClientResponseError"}


async def test_a_few_interim_answers_are_passed_over(ask: Ask) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n"
    answer = HEAD + b"Content-Length: 2\r\n\r\n{}"
    async with raw_server(sending(interim, answer)) as port, guarded(timeout_seconds=30) as http:
        assert (await ask(http, f"http://127.0.0.1:{port}/")).status == 200


# --- time ---------------------------------------------------------------------------------------


async def never(*_arguments: object) -> Any:
    await asyncio.Event().wait()


async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A slow stream of single bytes, which a limit between two reads would not notice."""
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.01)


async def drip_a_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 60000\r\n\r\n")
    await drip(reader, writer)


async def drip_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"X: ")
    await drip(reader, writer)


async def drip_interim_answers(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("converse", [never, drip_headers, drip_a_body, drip_interim_answers])
async def test_the_time_is_for_the_whole_answer(converse: Conversation) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    watch = Stopwatch()
    async with raw_server(converse) as port, guarded(timeout_seconds=0.3) as http:
        reason = await reason_of(http.request("GET", f"http://127.0.0.1:{port}/"))

    assert reason == "no answer in time"
    assert loop.time() - begun > 0.29
    assert watch.seconds() < 5


async def test_the_look_up_is_in_that_time(ask: Ask) -> None:
    async with guarded(STRICT, never, timeout_seconds=0.1) as http:
        assert await reason_of(ask(http, "https://api.example/")) == "no answer in time"


async def test_a_host_is_asked_by_so_many_at_once_and_others_do_not_wait_for_it() -> None:
    inside, most = 0, 0
    gate = asyncio.Event()

    async def answer(_request: web.Request) -> web.StreamResponse:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await gate.wait()
        inside -= 1
        return web.Response()

    async def is_full() -> bool:
        return inside == 2

    names = Names(a_localhost=[["127.0.0.1"]])
    policy = replace(DEV, max_per_host=2, max_waiting=6, timeout_seconds=10)
    async with (
        serving(answer) as slow,
        serving(hello) as quick,
        guarded(policy, names) as http,
        asyncio.TaskGroup() as group,
    ):
        url = f"http://127.0.0.1:{slow}/"
        asking = [group.create_task(http.request("GET", url)) for _ in range(5)]
        await until(is_full)
        assert (await http.request("GET", f"http://a.localhost:{quick}/")).status == 200
        asking.append(group.create_task(http.request("GET", url)))
        await asyncio.sleep(0)
        assert await reason_of(http.request("GET", url)) == "too many requests are waiting"
        gate.set()
        assert [(await response).status for response in asking] == [200] * 6

    assert most == 2


async def test_a_name_that_cannot_be_resolved_in_time_occupies_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other names are resolved meanwhile, however often the slow name is looked up."""
    release, look_ups = threading.Event(), Counter[str]()

    def resolve(host: str, *_: object, **__: object) -> list[Any]:
        look_ups[host] += 1
        if host == "slow.localhost":
            release.wait(10)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    policy = replace(DEV, max_per_host=100, timeout_seconds=0.2, max_lookups=2)
    async with serving(hello) as port, guarded(policy) as http:
        slow = [reason_of(http.request("GET", f"http://slow.localhost:{port}/")) for _ in range(20)]
        assert set(await asyncio.gather(*slow)) == {"no answer in time"}
        for name in ("one", "two", "three"):
            assert (await http.request("GET", f"http://{name}.localhost:{port}/")).status == 200
        assert look_ups["slow.localhost"] == 1
        release.set()

        async def is_back() -> bool:
            return await reason_or_status(http, f"http://slow.localhost:{port}/") == 200

        await until(is_back)


async def test_however_many_names_hang_another_one_is_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A brand names as many hosts as it likes, and its own name servers answer for them."""
    release, hanging = threading.Event(), Counter[str]()

    def resolve(host: str, *_: object, **__: object) -> list[Any]:
        if host.startswith("slow"):
            hanging[host] += 1
            release.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    async def hang() -> bool:
        return len(hanging) >= 16

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with serving(hello) as port, guarded(replace(DEV, timeout_seconds=30.0)) as http:
        slow = [
            asyncio.create_task(http.request("GET", f"http://slow{number}.localhost:{port}/"))
            for number in range(100)
        ]
        await until(hang)
        try:
            assert (await http.request("GET", f"http://quick.localhost:{port}/")).status == 200
        finally:
            release.set()
        assert {(await response).status for response in slow} == {200}
    assert set(hanging.values()) == {1}


async def reason_or_status(http: GuardedHttpClient, url: str) -> str | int:
    try:
        return (await http.request("GET", url)).status
    except RequestFailed as error:
        return error.reason


async def test_places_are_counted_for_each_host_alone() -> None:
    gate = asyncio.Event()

    async def answer(_request: web.Request) -> web.Response:
        await gate.wait()
        return web.Response()

    names = Names(a_localhost=[["127.0.0.1"]])
    policy = replace(DEV, max_per_host=2, max_waiting=2, timeout_seconds=10)
    async with serving(answer) as port, guarded(policy, names) as http:
        urls = [f"http://127.0.0.1:{port}/", f"http://a.localhost:{port}/"] * 2
        asking = [asyncio.create_task(http.request("GET", url)) for url in urls]
        await asyncio.sleep(0)
        for url in urls[:2]:
            assert await reason_of(http.request("GET", url)) == "too many requests are waiting"
        gate.set()
        assert [(await response).status for response in asking] == [200] * 4


async def test_a_failure_gives_its_place_back(ask: Ask) -> None:
    policy = replace(DEV, max_per_host=1, max_waiting=1)
    async with guarded(policy) as http:
        async with raw_server(sending(b"rubbish")) as port:
            await reason_of(ask(http, f"http://127.0.0.1:{port}/"))
        async with raw_server(never) as port:
            asking = asyncio.create_task(ask(http, f"http://127.0.0.1:{port}/"))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        async with serving(hello) as port:
            assert (await ask(http, f"http://127.0.0.1:{port}/")).status == 200


# --- connections --------------------------------------------------------------------------------


@dataclass
class Keeping:
    """A server that keeps connections open; `refuses` cuts the given ones off at their request."""

    server: asyncio.Server = field(init=False)
    url: str = ""
    refuses: Callable[[int, int], bool] = lambda _connection, _request: False
    requests: list[int] = field(default_factory=list)
    """The number of the connection of each request."""
    is_open: dict[int, bool] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.is_open)
        self.is_open[number] = True
        try:
            for request in itertools.count():
                await reader.readuntil(b"\r\n\r\nbody")
                self.requests.append(number)
                if self.refuses(number, request):
                    break
                await asyncio.sleep(0.02)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.is_open[number] = False
            writer.close()

    async def has_open(self, number: int) -> bool:
        return sum(self.is_open.values()) == number

    async def post(self, client: GuardedHttpClient) -> int:
        return (await client.post_for_head(self.url, body=b"body", headers={})).status


@pytest_asyncio.fixture
async def keeping() -> AsyncIterator[Keeping]:
    keeping = Keeping()
    keeping.server = await asyncio.start_server(keeping.serve, "127.0.0.1", 0)
    keeping.url = f"http://127.0.0.1:{keeping.server.sockets[0].getsockname()[1]}/"
    yield keeping
    keeping.server.close()
    await until(partial(keeping.has_open, 0))


async def test_a_connection_is_used_once_unless_the_policy_keeps_it(keeping: Keeping) -> None:
    async with guarded() as client:
        assert [await keeping.post(client) for _ in range(2)] == [200, 200]
    async with guarded(keep_open_seconds=5) as client:
        assert [await keeping.post(client) for _ in range(3)] == [200, 200, 200]

    assert keeping.requests == [0, 1, 2, 2, 2]


async def test_a_kept_connection_is_closed_after_its_time(keeping: Keeping) -> None:
    async with guarded(keep_open_seconds=0.1) as client:
        await keeping.post(client)
        await until(partial(keeping.has_open, 0))
        assert await keeping.post(client) == 200
    assert keeping.requests == [0, 1]


async def test_a_request_that_a_kept_connection_loses_is_sent_again_on_another(
    keeping: Keeping,
) -> None:
    keeping.refuses = lambda _connection, request: request == 1
    async with guarded(keep_open_seconds=5) as client:
        assert [await keeping.post(client) for _ in range(3)] == [200, 200, 200]

    assert keeping.requests == [0, 0, 1, 1, 2]


async def test_a_request_that_a_new_connection_loses_is_a_failure(keeping: Keeping) -> None:
    keeping.refuses = lambda connection, _request: connection >= 1
    async with guarded(keep_open_seconds=5) as client:
        await keeping.post(client)
        keeping.refuses = lambda _connection, _request: True
        with pytest.raises(RequestFailed) as failure:
            await keeping.post(client)

    assert failure.value.reason == "ServerDisconnectedError"
    assert keeping.requests == [0, 0, 1], "the kept connection was lost, and then the new one"


async def test_a_server_that_is_gone_after_a_kept_connection_is_a_failure_at_once(
    keeping: Keeping,
) -> None:
    async with guarded(keep_open_seconds=5, timeout_seconds=30.0) as client:
        await keeping.post(client)
        keeping.refuses = lambda _connection, _request: True
        keeping.server.close()
        with pytest.raises(RequestFailed) as failure:
            await keeping.post(client)
    assert failure.value.reason == "ClientConnectorError"


async def test_a_bounded_number_of_unused_connections_is_kept(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_posts, "_MOST_KEPT", 8)
    async with guarded(keep_open_seconds=5, max_per_host=20) as client:
        await asyncio.gather(*(keeping.post(client) for _ in range(20)))
        await until(partial(keeping.has_open, 8))
    assert len(keeping.is_open) == 20


async def test_a_closed_client_says_so(ask: Ask) -> None:
    async with guarded() as http:
        pass
    assert await reason_of(ask(http, "http://127.0.0.1:1/")) == "the client is closed"
    await http.close()


async def test_a_post_that_connects_while_the_client_closes_is_not_sent(keeping: Keeping) -> None:
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def resolve(_host: str) -> Sequence[str]:
        is_asked.set()
        await may_answer.wait()
        return ["127.0.0.1"]

    keeping.url = keeping.url.replace("127.0.0.1", "a.localhost")
    async with guarded(DEV, resolve) as client:
        posting = asyncio.create_task(keeping.post(client))
        await is_asked.wait()
    may_answer.set()
    with pytest.raises(RequestFailed) as failure:
        await posting
    assert failure.value.reason == "the client is closed"
    assert keeping.requests == []


# --- TLS ----------------------------------------------------------------------------------------


_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority that is trusted only where a test adds it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
        own = self._certificate(self._name, self._key.public_key(), is_authority=True)
        self.file = folder / "authority.pem"
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def server(self, host: str, days: int = 1) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = self._certificate(name, key.public_key(), host=host, days=days)
        file = self._folder / "server.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        return context

    def _certificate(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        host: str | None = None,
        days: int = 1,
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        authority = self._key.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=9))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False
            )
        )
        if is_authority:  # Python 3.13 demands of authorities what RFC 5280 4.2.1.3 does
            builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
        if host is not None:
            names = x509.SubjectAlternativeName([x509.DNSName(host)])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


@pytest.mark.parametrize(
    ("certified", "days", "is_trusted", "outcome"),
    [
        ("api.localhost", 1, True, "200"),
        ("api.localhost", 1, False, "ClientConnectorCertificateError"),
        ("other.localhost", 1, True, "ClientConnectorCertificateError"),
        ("api.localhost", -1, True, "ClientConnectorCertificateError"),
    ],
    ids=["right", "of an unknown authority", "another host's", "expired"],
)
async def test_a_certificate_must_be_right(
    ask: Ask,
    certified: str,
    days: int,
    is_trusted: bool,
    outcome: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = Authority(tmp_path)
    with monkeypatch.context() as environment:
        if is_trusted:
            environment.setenv("SSL_CERT_FILE", str(authority.file))
        trusted = ssl.create_default_context()
    monkeypatch.setattr(guarded_connector, "trust", lambda: trusted)
    names = Names(api_localhost=[["127.0.0.1"]])
    context = authority.server(certified, days)
    async with serving(hello, ssl_context=context) as port, guarded(DEV, names) as http:
        try:
            result = str((await ask(http, f"https://api.localhost:{port}/")).status)
        except RequestFailed as error:
            result = error.reason

    assert result == outcome


async def test_a_server_without_tls_is_a_failure(ask: Ask) -> None:
    async with serving(hello) as port, guarded() as http:
        reason = await reason_of(ask(http, f"https://127.0.0.1:{port}/"))
    assert reason == "ClientConnectorSSLError"

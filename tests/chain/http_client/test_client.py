"""The node's HTTP client beside aiohttp: the same answers from the same bytes."""

import asyncio
import gzip
import socket
import ssl
import weakref
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import aiohttp
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from ltzd.chain.http_client.answers import AnswerTooLong, HttpAnswer, HttpAnswerReader
from ltzd.chain.http_client.client import ConnectFailed, HttpClient
from tests.support.certificates import a_pair
from tests.support.garbage import no_collection

MOST = 10_000
JSON = b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'
ZIPPED = gzip.compress(JSON)
BARE = zlib.compressobj(wbits=-zlib.MAX_WBITS)
BARE_DEFLATED = BARE.compress(JSON) + BARE.flush()


def answer(*headers: bytes, body: bytes = JSON, status: bytes = b"200 OK") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 " + status, *headers, b"", body])


def sized(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    return answer(b"Content-Length: %d" % len(body), *headers, body=body, status=status)


CHUNKED = b"5\r\n" + JSON[:5] + b"\r\n%x;ext=1\r\n" % len(JSON[5:]) + JSON[5:] + b"\r\n0\r\n\r\n"

ANSWERS = {
    "sized": sized(JSON),
    "empty": sized(b""),
    "no content": answer(body=b"", status=b"204 No Content"),
    "chunked": answer(b"Transfer-Encoding: chunked", body=CHUNKED),
    "trailers": answer(b"Transfer-Encoding: chunked", body=CHUNKED[:-2] + b"Checksum: 1\r\n\r\n"),
    "until the end": answer(b"Connection: close"),
    "HTTP/1.0": sized(JSON).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "gzip": sized(ZIPPED, b"Content-Encoding: gzip"),
    "nothing in gzip": sized(b"", b"Content-Encoding: gzip"),
    "deflate": sized(zlib.compress(JSON), b"content-encoding: DEFLATE"),
    "bare deflate": sized(BARE_DEFLATED, b"Content-Encoding: deflate"),
    "redirect": sized(b"", b"Location: /elsewhere", status=b"307 Temporary Redirect"),
    "rate": sized(b"slow down", b"Retry-After: 7", status=b"429 Too Many Requests"),
    "interim": b"HTTP/1.1 100 Continue\r\nRetry-After: 1\r\n\r\n" + sized(JSON),
    "hints": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + sized(JSON),
    "longest": sized(b"x" * MOST),
    # Refused by both:
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "short": answer(b"Content-Length: 50"),
    "short chunk": answer(b"Transfer-Encoding: chunked", body=CHUNKED[:-5]),
    "bad chunk": answer(b"Transfer-Encoding: chunked", body=b"xyz\r\n\r\n"),
    "not gzip": sized(JSON, b"Content-Encoding: gzip"),
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "nothing": b"",
}
REFUSED = {"no HTTP", "short", "short chunk", "bad chunk", "not gzip", "half a head", "nothing"}


class ANode:
    """Answers each request with the next answer, a part at a time, or with the last one again."""

    def __init__(self, answers: Sequence[Sequence[bytes]], keeps_open: bool, scheme: str) -> None:
        self._answers = list(answers)
        self._scheme = scheme
        self.keeps_open = keeps_open
        self.port = 0
        self.connections: list[_ServerConnection] = []
        self.requests: list[bytes] = []

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/v3/key?x=1"

    def connect(self) -> "_ServerConnection":
        self.connections.append(_ServerConnection(self))
        return self.connections[-1]

    def answer_to(self, request: bytes) -> Sequence[bytes]:
        self.requests.append(request)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class _ServerConnection(asyncio.Protocol):
    def __init__(self, node: ANode) -> None:
        self._node = node
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if separator and len(body) == int(
            head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
        ):
            parts, self._received = self._node.answer_to(self._received), b""
            for part in parts:
                self.transport.write(part)
            if not self._node.keeps_open:
                self.transport.close()


@asynccontextmanager
async def a_node(
    *answers: Sequence[bytes], keeps_open: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[ANode]:
    node = ANode(answers, keeps_open, "http" if tls is None else "https")
    server = await asyncio.get_running_loop().create_server(node.connect, "127.0.0.1", 0, ssl=tls)
    node.port = server.sockets[0].getsockname()[1]
    async with server:
        yield node
        for connection in node.connections:
            connection.transport.abort()
        await asyncio.sleep(0)


async def by_aiohttp(url: str) -> tuple[int, bytes] | None:
    """Returns None if aiohttp refuses the answer."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=b"{}", allow_redirects=False) as response,
        ):
            return response.status, await response.read()
    except (aiohttp.ClientError, ValueError):
        return None


async def by_ltzd(url: str) -> tuple[int, bytes] | None:
    client = HttpClient(url, timeout_seconds=10)
    try:
        got = await client.post(b"{}", MOST)
    except (ConnectionError, ValueError):
        return None
    finally:
        client.close()
    return got.status, got.body


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_read_as_aiohttp_reads_it(name: str) -> None:
    async with a_node([ANSWERS[name]]) as node:
        expected = await by_aiohttp(node.url)
        assert await by_ltzd(node.url) == expected
    assert (expected is None) == (name in REFUSED)


@settings(max_examples=100)
@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_an_answer_does_not_depend_on_where_its_bytes_are_cut(
    name: str, lengths: list[int]
) -> None:
    assert read(cut(ANSWERS[name], lengths)) == read([ANSWERS[name]])


@pytest.mark.parametrize(
    ("endless", "refusal"),
    [
        (b"1;" + b"a" * 1_000_000, AnswerTooLong),
        (b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 1_000, ValueError),
    ],
    ids=["an extension", "trailers"],
)
def test_what_does_not_count_as_body_is_bounded_too(
    endless: bytes, refusal: type[Exception]
) -> None:
    """A node could send either for as long as a call may take, and occupy the event loop."""
    parts = cut(answer(b"Transfer-Encoding: chunked", body=endless), [5_000])
    with pytest.raises(refusal, match=r"longer than 10000 bytes|is not HTTP"):
        read_all(parts)


def cut(content: bytes, lengths: Sequence[int]) -> list[bytes]:
    parts, at, turn = [], 0, 0
    while at < len(content):
        length = lengths[turn % len(lengths)]
        parts.append(content[at : at + length])
        at, turn = at + length, turn + 1
    return parts


def read_all(parts: Sequence[bytes]) -> HttpAnswer:
    reader = HttpAnswerReader(MOST)
    for part in parts:
        if (got := reader.feed(part)) is not None:
            return got
    return reader.end()


def read(parts: Sequence[bytes]) -> HttpAnswer | str:
    try:
        return read_all(parts)
    except (ConnectionError, ValueError) as error:
        return type(error).__name__


async def test_connections_are_used_again() -> None:
    async with a_node([sized(JSON)], keeps_open=True) as node:
        client = HttpClient(node.url, timeout_seconds=10)
        for _ in range(3):
            await client.post(b"{}", MOST)
        await asyncio.gather(*(client.post(b"{}", MOST) for _ in range(2)))
        client.close()
    assert (len(node.connections), len(node.requests)) == (2, 5)


@pytest.mark.parametrize(
    "content",
    [sized(JSON, b"Connection: close"), sized(JSON) + b"HTTP/1.1 200 OK\r\n", sized(JSON) * 2],
)
async def test_a_connection_that_may_hold_another_answer_is_not_used_again(content: bytes) -> None:
    async with a_node([content], [sized(b"second")], keeps_open=True) as node:
        client = HttpClient(node.url, timeout_seconds=10)
        first, second = await client.post(b"{}", MOST), await client.post(b"{}", MOST)
        client.close()
    assert (first.body, second.body, len(node.connections)) == (JSON, b"second", 2)


async def test_an_answer_that_comes_too_late_is_not_the_next_requests() -> None:
    async with a_node([], [sized(b"second")], keeps_open=True) as node:
        client = HttpClient(node.url, timeout_seconds=0.3)
        with pytest.raises(TimeoutError):
            await client.post(b"{}", MOST)
        node.connections[0].transport.write(sized(b"first"))
        assert (await client.post(b"{}", MOST)).body == b"second"
        client.close()


@pytest.mark.parametrize(
    "content",
    [
        sized(b"x" * (MOST + 1)),
        answer(b"Transfer-Encoding: chunked", body=b"fffff\r\n" + b"x" * (MOST + 1)),
        sized(gzip.compress(bytes(1_000 * MOST)), b"Content-Encoding: gzip"),
    ],
)
async def test_a_longer_answer_is_refused_before_it_is_held(content: bytes) -> None:
    async with a_node([content]) as node:
        client = HttpClient(node.url, timeout_seconds=10)
        with pytest.raises(AnswerTooLong, match="10000 bytes"):
            await client.post(b"{}", MOST)
        client.close()


@pytest.mark.parametrize(
    "content",
    [
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
        sized(JSON, b"Content-Encoding: br"),
        sized(ZIPPED[:-9], b"Content-Encoding: gzip"),
        answer(b"Upgrade: websocket", b"Connection: upgrade", status=b"101 Switching Protocols"),
    ],
)
async def test_an_unreadable_answer_is_refused(content: bytes) -> None:
    async with a_node([content]) as node:
        client = HttpClient(node.url, timeout_seconds=10)
        with pytest.raises(ValueError, match="node"):
            await client.post(b"{}", MOST)
        client.close()


async def test_the_request_names_the_path_the_host_and_the_password() -> None:
    async with a_node([sized(JSON)]) as node:
        url = f"http://me:s%40cret@127.0.0.1:{node.port}/a%20b/?q=%2F"
        client = HttpClient(url, timeout_seconds=10)
        await client.post(b"[1]", MOST)
        client.close()
        async with aiohttp.ClientSession() as session, session.post(url, data=b"[1]") as response:
            await response.read()
    ours, theirs = ({*request.split(b"\r\n")} for request in node.requests)
    wanted = {b"Host", b"Authorization", b"Content-Length", b"POST /a%20b/?q=%2F HTTP/1.1", b"[1]"}
    assert {line for line in theirs if line.split(b": ")[0] in wanted} <= ours


def test_the_client_works_on_uvloop_and_demands_a_trusted_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = a_pair().write(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def bodies() -> list[bytes]:
        async with a_node([sized(JSON)], keeps_open=True, tls=context) as node:
            client = HttpClient(node.url, timeout_seconds=10)
            try:
                return [(await client.post(b"{}", MOST)).body for _ in range(2)]
            finally:
                client.close()

    with pytest.raises(ConnectFailed, match="certificate is not trusted"):
        uvloop.run(bodies())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert uvloop.run(bodies()) == [JSON, JSON]


async def test_a_node_that_cannot_be_reached_was_sent_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        for url, reason in (
            (f"http://127.0.0.1:{taken.getsockname()[1]}", "connection refused"),
            ("http://node.invalid", "host name is unknown"),
        ):
            with pytest.raises(ConnectFailed, match=reason):
                await HttpClient(url, timeout_seconds=10).post(b"{}", MOST)


@pytest.mark.parametrize("name", [*ANSWERS, "too long"])
def test_a_reader_and_its_answer_end_with_their_last_reference(name: str) -> None:
    """A node's answers of megabytes would add up to the next collection of garbage."""
    with no_collection():
        reader = HttpAnswerReader(MOST)
        reference = weakref.ref(reader)
        with suppress(AnswerTooLong, ValueError):
            reader.feed(ANSWERS.get(name, sized(b"x" * (MOST + 1))))
        del reader
        assert reference() is None

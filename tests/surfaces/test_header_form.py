"""A header line that another reader could understand otherwise is 400, and ends the connection.

Behind each head here comes a second request, which a proxy may have passed on as a body.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.cache.rate_limits import RateLimit
from ltzd.http.requests.header_form import is_well_formed
from ltzd.http.requests.rate_limits import PER_CLIENT
from ltzd.http.services import HttpPolicy
from tests.support.surfaces.http_surface import (
    COOKIE,
    NONCE,
    SITE_HOST,
    RunningSurfaces,
    a_surface,
)

FAULT = "Malformed request: a header's name or value holds a character that is not allowed there"
SECOND = b"GET /service-api/debug HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
BAD = {
    "length-space": b"Content-Length : %d" % len(SECOND),
    "coding-space": b"Transfer-Encoding : chunked",
    "coding-tab": b"Transfer-Encoding\t: chunked",
    "host-space": b"Host : evil.example",
    "folded": b"X-A: b\r\n c: d",
    "bare-lf": b"X-A: b\nContent-Length: %d" % len(SECOND),
    "bare-cr": b"X-A: b\rContent-Length: %d" % len(SECOND),
    "nul": b"X-A: b\0c",
    "no-name": b": b",
    "name-of-bytes": b"X-\xff: b",
    "two-names": b"X A: b",
    "vertical-tab": b"Transfer-Encoding: \x0bchunked",
    "no-break-space": b"Transfer-Encoding: \xc2\xa0chunked",
}


@pytest_asyncio.fixture(scope="module")
async def surface() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as running:
        yield running


async def say(surface: RunningSurfaces, raw: bytes) -> bytes:
    """All that the server answers until it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(surface.url.rpartition(":")[2]))
    writer.write(raw)
    received = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return received


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
async def test_a_head_that_can_be_read_in_two_ways_is_refused_with_all_behind_it(
    surface: RunningSurfaces, line: bytes
) -> None:
    first = b"GET /service-api/health HTTP/1.1\r\nHost: a.example\r\n" + line + b"\r\n\r\n"
    received = await say(surface, first + SECOND)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head.lower()
    assert json.loads(body) == {"success": False, "error": FAULT}


@pytest.mark.parametrize(
    ("framing", "body"),
    [
        ("Content-Length: \u0662".encode(), b"{}"),
        (b"Transfer-Encoding: chunked", b"0x2\r\n{}\r\n0\r\n\r\n"),
        (b"Transfer-Encoding: chunked", b" 2\r\n{}\r\n0\r\n\r\n"),
        (b"Transfer-Encoding: chunked", "\u0662\r\n{}\r\n0\r\n\r\n".encode()),
        (b"Transfer-Encoding: chunked", b"2\r\n{}XX0\r\n\r\n"),
        # After a line feed that ends the data, another reader reads a chunk of 0x50 bytes.
        (b"Transfer-Encoding: chunked", b"2\r\n{}\n50\r\n\r\n"),
        # A line feed ends the line of the chunk's size for another reader.
        (b"Transfer-Encoding: chunked", b"2;\n{}\r\n{}\r\n0\r\n\r\n"),
        (b"Transfer-Encoding: chunked", b"2\r\n{}\r\n0;\n\r\n\r\n"),
        (b"Transfer-Encoding: chunked", b"2;" + b"a" * 63 + b"\r\n{}\r\n0\r\n\r\n"),
    ],
    ids=[
        "arabic-length",
        "0x-chunk",
        "space-chunk",
        "arabic-chunk",
        "data-without-end",
        "data-with-line-feed",
        "extension-with-line-feed",
        "last-chunk-with-line-feed",
        "too-long-extension",
    ],
)
async def test_a_length_that_another_reader_may_not_understand_is_refused_with_all_behind_it(
    surface: RunningSurfaces, framing: bytes, body: bytes
) -> None:
    head = b"POST /service-api/verify-dns HTTP/1.1\r\nHost: a.example\r\n"
    json_type = b"\r\nContent-Type: application/json\r\n\r\n"
    received = await say(surface, head + framing + json_type + body + SECOND)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b"Malformed request" in received
    assert received.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "chunks",
    [
        [b"2\r\n{}\r\n0\r\n\r\n"],
        [b'1;name=value\r\n{\r\n1;a="b"\r\n}\r\n0;x\r\n\r\n'],
        [b"2 \r\n{}\r\n", b"0\r\n\r\n"],
        [b"2;" + b"a" * 62, b"\r\n{}\r\n0\r\n\r\n"],
        [b"2", b"\r", b"\n{", b"}\r", b"\n0\r\n", b"\r\n"],
    ],
    ids=["plain", "extensions", "space", "long-extension", "in-pieces"],
)
async def test_a_well_formed_chunked_body_is_read(
    surface: RunningSurfaces, chunks: list[bytes]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(surface.url.rpartition(":")[2]))
    head = b"POST /service-api/verify-dns HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\n"
    writer.write(head + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    for chunk in chunks:
        writer.write(chunk)
        await writer.drain()
    writer.write(SECOND)
    received = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    assert b"domain: is required" in received
    assert received.count(b"HTTP/1.1 ") == 2


@pytest.mark.parametrize("start", [b"POST /nowhere", b"PUT /relay", b"OPTIONS /relay"])
async def test_nothing_behind_such_a_body_is_read_if_it_has_no_reader(
    surface: RunningSurfaces, start: bytes
) -> None:
    head = start + b" HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    received = await say(surface, head + b"2\r\n{}\n50\r\n\r\n" + SECOND)
    assert received.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("path", [b"/service-api/verify-dns", b"/relay"])
async def test_a_chunked_body_of_http_1_0_is_refused_with_all_behind_it(
    surface: RunningSurfaces, path: bytes
) -> None:
    """A proxy that knows HTTP/1.0 alone reads the chunks as the next request."""
    start = b"POST " + path + b" HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n"
    coded = start + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    received = await say(surface, coded + b"2\r\n{}\r\n0\r\n\r\n" + SECOND)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head.lower()
    error = json.loads(body)["error"]
    assert error == "Malformed request: HTTP/1.0 has no Transfer-Encoding"


async def test_a_method_called_none_is_judged_like_any_other(surface: RunningSurfaces) -> None:
    """Sanic gives that method to its own stand-in for a head that it cannot parse."""
    start = b"NONE /service-api/manual-event HTTP/1.1\r\nHost: a.example\r\n"
    received = await say(surface, start + BAD["length-space"] + b"\r\n\r\n" + SECOND)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert json.loads(received.partition(b"\r\n\r\n")[2]) == {"success": False, "error": FAULT}
    received = await say(surface, start + b"Connection: close\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 405 ")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["success"] is False
    two_hosts = await say(surface, start + b"Host: b.example\r\nConnection: close\r\n\r\n")
    assert two_hosts.startswith(b"HTTP/1.1 400 ")


async def test_nothing_behind_such_a_head_is_read_if_the_address_is_over_its_limit() -> None:
    """The limit counts malformed requests too, and its refusal comes first."""
    limits = replace(PER_CLIENT, relayer=RateLimit("relay_ip", 1, 60))
    async with a_surface(HttpPolicy(per_client=limits, grace_seconds=2.0)) as surface:
        head = b"POST /relay HTTP/1.1\r\nHost: a.example\r\n" + BAD["length-space"]
        for status in (b"400", b"429"):
            received = await say(surface, head + b"\r\n\r\n" + SECOND)
            assert received.startswith(b"HTTP/1.1 " + status)
            assert received.count(b"HTTP/1.1 ") == 1


async def test_the_relayer_answers_in_its_own_shape(surface: RunningSurfaces) -> None:
    received = await say(surface, b"POST /relay HTTP/1.1\r\nHost: a.example\r\nX-A : b\r\n\r\n")
    assert json.loads(received.partition(b"\r\n\r\n")[2]) == {"error": FAULT, "code": "BAD_REQUEST"}


@pytest.mark.parametrize(
    "line",
    [b"X-A:b", b"X-A:", b"X-A: b: c", b"X-A:\tb \t", b"X-A: \xc3\xa9", b"x!#$%&'*+.^_`|~0: b"],
)
async def test_other_headers_are_served(surface: RunningSurfaces, line: bytes) -> None:
    head = b"GET /service-api/health HTTP/1.1\r\nHost: a.example\r\n" + line
    assert is_well_formed(head)
    received = await say(surface, head + b"\r\nConnection: close\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200 ")


def test_a_head_of_many_bytes_is_judged_in_linear_time() -> None:
    assert not is_well_formed(b"GET / HTTP/1.1" + b"\r\nX-A: b" * 4_000 + b"\r\nX : b")
    assert not is_well_formed(b"GET / HTTP/1.1\r\n" + b"a" * 32_000)


async def test_a_content_type_of_many_spaces_is_judged_in_linear_time(
    surface: RunningSurfaces,
) -> None:
    """The process serves nobody else meanwhile: in quadratic time, for seconds."""
    before = time.thread_time()  # the server runs in this thread
    received = await say(
        surface,
        b"POST /service-api/manual-event HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n"
        b"Content-Length: 2\r\nContent-Type: application/json" + b" " * 32_000 + b"x\r\n\r\n{}",
    )
    assert time.thread_time() - before < 1
    assert received.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (
            b"Content-Type: application/json\r\nContent-Type: text/plain",
            "Content-Type must be given once",
        ),
        (
            b"Content-Type: application/json"
            + b"".join(b"\r\nContent-Encoding: " + coding for coding in (b"identity", b"gzip")),
            "Compressed request bodies are not accepted",
        ),
    ],
    ids=["type", "encoding"],
)
async def test_no_line_of_a_repeated_header_about_the_body_wins(
    surface: RunningSurfaces, lines: bytes, fault: str
) -> None:
    received = await say(
        surface,
        b"POST /service-api/manual-event HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n"
        b"Content-Length: 2\r\n" + lines + b"\r\n\r\n{}",
    )
    assert received.startswith(b"HTTP/1.1 400 ")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["error"] == fault


@pytest.mark.parametrize("other", [NONCE, "0000000000"])
async def test_a_nonce_that_is_there_twice_is_no_log_in(
    surface: RunningSurfaces, other: str
) -> None:
    lines = [f"Host: {SITE_HOST}", "Connection: close", f"Cookie: {COOKIE}", f"X-WP-Nonce: {NONCE}"]
    for repeated, status in (([], 200), ([f"X-WP-Nonce: {other}"], 401)):
        head = "\r\n".join(["GET /wp-json/loyalty/v1/me HTTP/1.1", *lines, *repeated])
        received = await say(surface, head.encode() + b"\r\n\r\n")
        assert received.startswith(b"HTTP/1.1 %d " % status)

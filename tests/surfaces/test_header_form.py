"""A header line that another reader could understand otherwise is 400, and ends the connection.

Behind each head here comes a second request, which a proxy may have passed on as a body.
"""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ltzd.http.requests.header_form import is_well_formed
from tests.support.surfaces.http_surface import RunningSurfaces, a_surface

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
}


@pytest_asyncio.fixture(scope="module")
async def surface() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as running:
        yield running


async def say(surface: RunningSurfaces, raw: bytes) -> bytes:
    """All that the server answers until it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(surface.url.rpartition(":")[2]))
    writer.write(raw)
    received = await asyncio.wait_for(reader.read(), 5)
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

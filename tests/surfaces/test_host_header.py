"""A malformed Host is 400 on every surface, with the surface's own error body."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from ltzd.http.requests.host_header import is_authority
from tests.support.surfaces.http_surface import RunningSurfaces, a_surface

ONCE = "Malformed request: the Host header must be given once"
FORM = "Malformed request: Host must be a name or an address, with or without a port"
EVENT: dict[str, object] = {
    "success": False,
    "error": ONCE,
}
RELAY: dict[str, object] = {
    "error": ONCE,
    "code": "BAD_REQUEST",
}
SITE: dict[str, object] = {
    "code": "rest_bad_request",
    "message": ONCE,
    "data": {"status": 400},
}
ENVELOPES: list[tuple[str, dict[str, object]]] = [
    ("GET /service-api/health", EVENT),
    ("GET /service-api/debug", EVENT),
    ("POST /service-api/manual-event", EVENT),
    (
        "POST /service-api/payment-mint",
        {"success": False, "message": ONCE},
    ),
    (
        "POST /service-api/pregenerate-user",
        {"error": ONCE},
    ),
    ("POST /invalidate-external-api", EVENT),
    ("POST /relay", RELAY),
    ("GET /check-perk-status", RELAY),
    ("GET /docs/", RELAY),
    ("GET /nowhere", RELAY),
    ("OPTIONS /relay", RELAY),
    ("GET /wp-json/loyalty/v1/leaderboard", SITE),
    ("POST /wp-json/loyalty/v1/checkin", SITE),
]
GOOD = [
    "shop.example",
    "SHOP.example.:8443",
    "a_b:80",
    "127.0.0.1:8000",
    "[::1]",
    "[2001:db8::1]:443",
    "shop.example:",
    "%41.example",
    "  shop.example\t",
]
BAD = [
    "",
    ":80",
    "shop example",
    "shop.example, evil.example",
    "shop.example/",
    "shop.example?x",
    "user@shop.example",
    "shop.example:80:80",
    "shop.example:x",
    "shop.example:65536",
    "shop.example:123456",
    "[::1",
    "[::1]x",
    "[1:2]",
    "[zz]",
    "::1",
    "%4x.example",
    "http://shop.example",
    "shop.ex\u00e4mple",
    "\udcffshop.example",
    "shop\x7f.example",
]


@pytest_asyncio.fixture(scope="module")
async def surface() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as running:
        yield running


async def say(surface: RunningSurfaces, line: str, hosts: bytes) -> tuple[int, Any]:
    """Status and body of the response to a request with these Host lines."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(surface.url.rpartition(":")[2]))
    length = b"Content-Length: 0\r\n" if line.startswith("POST") else b""
    version = b"" if " HTTP/" in line else b" HTTP/1.1"
    writer.write(line.encode() + version + b"\r\n" + hosts + length + b"Connection: close\r\n\r\n")
    head, _, body = (await asyncio.wait_for(reader.read(), 20)).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split(b" ")[1]), json.loads(body) if body[:1] == b"{" else body


@pytest.mark.parametrize("host", GOOD)
def test_a_name_or_an_address_is_a_host_with_or_without_a_port(host: str) -> None:
    assert is_authority(host)


@pytest.mark.parametrize("host", BAD)
def test_anything_else_is_none(host: str) -> None:
    assert not is_authority(host)


@pytest.mark.parametrize(("line", "body"), ENVELOPES, ids=[line for line, _ in ENVELOPES])
@pytest.mark.parametrize(
    "hosts", [b"Host: a.example\r\nHost: a.example\r\n", b""], ids=["two", "none"]
)
async def test_a_host_is_given_once_or_400_in_the_surfaces_envelope(
    surface: RunningSurfaces, line: str, body: dict[str, object], hosts: bytes
) -> None:
    surface.reset_relays()
    assert await say(surface, line, hosts) == (400, body)


@pytest.mark.parametrize(("line", "body"), ENVELOPES, ids=[line for line, _ in ENVELOPES])
@pytest.mark.parametrize(
    "host",
    [
        b"Host: shop example",
        b"Host: \xff",
        b"Host:",
        b"Host: a.example:70000",
        b"Host: " + b"a" * 30_000,
    ],
    ids=["space", "bytes", "empty", "port", "long"],
)
async def test_a_malformed_host_is_400_in_the_surfaces_envelope(
    surface: RunningSurfaces, line: str, body: dict[str, object], host: bytes
) -> None:
    surface.reset_relays()
    expected = {key: FORM if key in {"error", "message"} else value for key, value in body.items()}
    assert await say(surface, line, host + b"\r\n") == (400, expected)


async def test_http_1_0_may_do_without_a_host_but_not_with_a_malformed_one(
    surface: RunningSurfaces,
) -> None:
    line = "GET /service-api/health HTTP/1.0"
    assert (await say(surface, line, b""))[0] == 200
    assert (await say(surface, line, b"Host: a b\r\n"))[0] == 400
    assert (await say(surface, line, b"Host: a\r\nHost: a\r\n"))[0] == 400
    site = "GET /wp-json/loyalty/v1/leaderboard HTTP/1.0"
    assert (await say(surface, site, b""))[1]["code"] == "not_configured"


async def test_a_good_host_is_served(surface: RunningSurfaces) -> None:
    for host in GOOD:
        response = await say(
            surface, "GET /service-api/health", b"Host: " + host.encode() + b"\r\n"
        )
        assert response[0] == 200, host

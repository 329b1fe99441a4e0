"""Each request of the public server is one line of the log, if the settings ask for it."""

import asyncio
import json
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from ltzd.concurrency.line_limits import LineLimits
from ltzd.http import errors
from ltzd.http.requests.client_address import Proxies
from ltzd.http.services import HttpPolicy
from tests.support.clocks import ManualClock
from tests.support.surfaces.http_surface import RunningSurfaces, a_surface
from tests.support.waiting import until

LOGGED = HttpPolicy(
    grace_seconds=2.0,
    logs_requests=True,
    requires_https=False,
    proxies=Proxies(1, (ip_network("127.0.0.1/32"),)),
)


async def access_lines(surfaces: RunningSurfaces, *paths: str, **options: Any) -> list[Any]:
    with capture_logs() as logs:
        for path in paths:
            async with surfaces.client.get(surfaces.url + path, **options) as answer:
                await answer.read()
    return [line for line in logs if line["event"] == "http.request"]


async def test_a_request_is_a_line_without_its_query_and_headers() -> None:
    event = UUID(int=7)
    path = f"/service-api/events/{event}?email=ada@example.com&token=s3cret"
    headers = {
        "X-Request-Id": "r-1",
        "X-Forwarded-For": "9.9.9.9",
        "Authorization": "Bearer header.payload.signature",
    }
    async with a_surface(LOGGED) as surfaces:
        (line,) = await access_lines(surfaces, path, headers=headers)
    assert line.pop("ms") >= 0
    assert line.pop("bytes") > 0
    assert line == {
        "event": "http.request",
        "log_level": "info",
        "method": "GET",
        "route": "service-api/events/<event_id:str>",
        "status": 404,
        "client": "public",
        "request_id": "r-1",
    }


async def test_an_unknown_path_is_not_repeated_and_each_client_has_its_class() -> None:
    async with a_surface(LOGGED) as surfaces:
        (unknown,) = await access_lines(surfaces, "/ada@example.com")
        (private,) = await access_lines(
            surfaces, "/service-api/debug", headers={"X-Forwarded-For": "10.1.2.3"}
        )
    assert (unknown["route"], unknown["status"], unknown["client"]) == ("unknown", 404, "loopback")
    assert "ada" not in json.dumps(unknown)
    assert (private["status"], private["client"]) == (200, "private")


async def test_a_head_that_cannot_be_parsed_is_a_line_too() -> None:
    async with a_surface(LOGGED) as surfaces:
        with capture_logs() as logs:

            async def requests() -> list[Any]:
                return [each for each in logs if each["event"] == "http.request"]

            parts = urlsplit(surfaces.url)
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(b"NONSENSE ada@example.com\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
            writer.close()
            lines = await until(requests)
    assert [(line["status"], line["route"]) for line in lines] == [(400, "unknown")]
    assert "ada" not in json.dumps(lines)


async def test_without_the_setting_a_request_is_no_line() -> None:
    async with a_surface() as surfaces:
        assert await access_lines(surfaces, "/service-api/debug") == []


async def test_a_stranger_cannot_fill_the_log_with_refusals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The specification answers 500 to a Host of no site, which is any Host of a stranger's."""
    clock = ManualClock()
    monkeypatch.setattr(errors, "_lines", LineLimits(clock))
    leaderboard = HttpPolicy().site_base + "/leaderboard"

    async def ask(surfaces: RunningSurfaces, times: int) -> None:
        for _ in range(times):
            async with surfaces.client.get(surfaces.url + leaderboard) as answer:
                assert answer.status == 500

    async with a_surface(HttpPolicy(grace_seconds=2.0)) as surfaces:
        with capture_logs() as logs:
            await ask(surfaces, 100)
            clock.now += 1.0
            await ask(surfaces, 1)
    lines = [(line["event"], line.get("lines")) for line in logs if "code" in line]
    assert lines.count(("http.server_error", None)) == 21
    assert lines[-2] == ("http.lines_left_out", 80)

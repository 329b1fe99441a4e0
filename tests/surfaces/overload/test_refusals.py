"""A busy application: what is refused, in each surface's shape, and what is always answered."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ltzd.http.admission.gate import AdmissionGate, Asker
from ltzd.rules.admission import AdmissionPolicy, Urgency
from tests.support.surfaces.http_surface import (
    RunningSurfaces,
    a_surface,
    an_event,
)
from tests.support.waiting import until

TINY = AdmissionPolicy(least=4, patient_least=4, most=4, burst=1, patient_burst=1, share=100.0)
"""Four slots, all for one party, as many for relays, and lines of one."""
ORIGIN = "https://www.shop.example"
OTHER = "0x" + "cd" * 20


@asynccontextmanager
async def a_busy_surface() -> AsyncIterator[RunningSurfaces]:
    """Four events are being recorded, one waits, and relays have no slots, until the block ends."""
    gate = AdmissionGate(TINY)
    async with a_surface(gate=gate) as surface:
        surface.events.gate = asyncio.Event()
        held = [
            asyncio.create_task(post(surface, EVENT, an_event(userEmail=f"u{n}@shop.example")))
            for n in range(5)
        ]
        try:
            await until_true(lambda: gate.in_progress == 4 and gate.is_crowded)
            relays = [gate.try_begin(Asker(Urgency.PATIENT, "relayer", "1")) for _ in range(4)]
            yield surface
            for slot in relays:
                assert slot is not None
                slot.release()
        finally:
            surface.events.gate.set()
            statuses = sorted(answer[0] for answer in await asyncio.gather(*held))
        assert statuses in ([200] * 5, [200] * 4 + [503])
        await until_true(lambda: gate.in_progress == 0)


async def until_true(claim: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return claim()

    await until(holds)


EVENT = "/service-api/manual-event"
RELAY = "/relay"
BUSY = "The service is busy; repeat the request later"


async def post(
    surface: RunningSurfaces, path: str, body: object, **headers: str
) -> tuple[int, Any, Any]:
    async with surface.client.post(surface.url + path, json=body, headers=headers) as answer:
        return answer.status, await answer.json(), answer.headers


@pytest.mark.parametrize(
    ("path", "body", "status", "expected"),
    [
        (EVENT, an_event(), 503, {"success": False, "error": BUSY}),
        ("/service-api/bulk-events", {}, 503, {"success": False, "error": BUSY}),
        ("/service-api/create-checkout", {}, 503, {"success": False, "error": BUSY}),
        ("/service-api/pregenerate-user", {}, 429, {"error": BUSY}),
        ("/invalidate-external-api", {}, 503, {"success": False, "error": BUSY}),
        ("/site-links", {}, 503, {"error": BUSY, "code": "OVERLOADED"}),
        (
            "/wp-json/loyalty/v1/checkin",
            {},
            503,
            {
                "code": "api_error",
                "message": "Too many people use this at the moment. "
                "Please try again in a few seconds.",
                "data": {"status": 503},
            },
        ),
    ],
)
async def test_each_surface_refuses_in_its_own_shape_and_says_when_to_come_back(
    path: str, body: object, status: int, expected: object
) -> None:
    async with a_busy_surface() as surface:
        got, answer, headers = await post(surface, path, body, Origin=ORIGIN)
        assert (got, answer) == (status, expected)
        assert int(headers["Retry-After"]) >= 1
        assert headers["Access-Control-Allow-Origin"] == ORIGIN
        assert headers["X-Request-Id"]
        recorded = len(surface.events.requests)
    assert recorded == 4


async def test_the_ordinary_way_and_the_early_one_answer_the_same() -> None:
    """A body in two pieces is no whole request, so the application refuses it."""
    async with a_busy_surface() as surface:
        body = json.dumps(an_event()).encode()
        for path in (EVENT, RELAY, "/service-api/pregenerate-user"):
            head = (
                f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"X-Request-Id: same\r\nOrigin: {ORIGIN}\r\nContent-Length: {len(body)}\r\n\r\n"
            ).encode()
            if path == RELAY:  # a relay may wait, so its line must be full
                waiting = asyncio.create_task(post(surface, path, {}))
                await asyncio.sleep(0.05)
            early, late = await say(surface, head + body), await say(surface, head, body)
            assert headers_of(early) == headers_of(late)
            assert b"\r\nDate: " in early
            assert b"\r\nDate: " in late
            assert early.partition(b"\r\n\r\n")[2] == late.partition(b"\r\n\r\n")[2]
            if path == RELAY:
                assert b"X-RateLimit-Remaining: 0" in early
                waiting.cancel()


def headers_of(answer: bytes) -> set[bytes]:
    lines = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
    timed = (b"x-ratelimit-reset", b"retry-after", b"date")
    return {line for line in lines if not line.lower().startswith(timed)}


async def say(surface: RunningSurfaces, *pieces: bytes) -> bytes:
    """Sends the pieces one after the other, and returns one answer."""
    port = int(surface.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.02)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        length = next(
            int(line.partition(b":")[2])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        return head + await reader.readexactly(length)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_refused_connection_stays_open_and_is_served_later() -> None:
    async with a_busy_surface() as surface:
        port = int(surface.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps(an_event(userEmail="later@shop.example")).encode()
        request = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % (
            EVENT.encode()
        ) + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        for _ in range(3):
            writer.write(request)
            assert b" 503 " in await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"}")
        assert surface.events.gate is not None
        surface.events.gate.set()
        await until_true(lambda: len(surface.events.requests) >= 4)
        await asyncio.sleep(0.05)
        writer.write(request)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()


async def test_health_and_preflights_are_always_answered() -> None:
    async with a_busy_surface() as surface:
        for path in ("/service-api/health", "/service-api/diagnostic", "/service-api/debug"):
            async with surface.client.get(surface.url + path) as answer:
                assert answer.status == 200
        async with surface.client.options(surface.url + EVENT) as answer:
            assert answer.status == 204
        async with surface.client.get(surface.url + "/nowhere") as answer:
            assert answer.status == 404


async def test_reads_of_outcomes_are_next() -> None:
    async with a_busy_surface() as surface:
        path = "/service-api/events/6f1c2a52-3c1e-4d0a-9d5e-0a2f6f1d8c11"
        read = asyncio.create_task(surface.client.get(surface.url + path))
        await asyncio.sleep(0.05)
        assert not read.done()
        assert surface.events.gate is not None
        surface.events.gate.set()
        assert (await read).status == 404


async def test_a_brand_with_its_share_is_told_so_while_another_is_served() -> None:
    gate = AdmissionGate(AdmissionPolicy(least=8, most=8, burst=1))
    async with a_surface(gate=gate) as surface:
        surface.events.gate = asyncio.Event()
        tasks = [
            asyncio.create_task(post(surface, EVENT, an_event(userEmail=f"u{n}@shop.example")))
            for n in range(7)
        ]
        await until_true(lambda: gate.in_progress == 6 and gate.is_crowded)
        other = an_event(brandId=OTHER, userEmail="b@shop.example")
        tasks.append(asyncio.create_task(post(surface, EVENT, other)))
        await until_true(lambda: gate.in_progress == 7)
        status, answer, headers = await post(surface, EVENT, an_event())
        assert status == 429
        assert answer["details"]["reason"] == "busy"
        assert answer["details"]["retryAfterSeconds"] == int(headers["Retry-After"])
        assert gate.in_progress == 7
        surface.events.gate.set()
        answers = await asyncio.gather(*tasks)
        assert [answer[0] for answer in answers] == [200] * 8


async def test_a_body_that_comes_slowly_holds_no_slot() -> None:
    gate = AdmissionGate(TINY)
    async with a_surface(gate=gate) as surface:
        port = int(surface.url.rpartition(":")[2])
        writers = []
        for _ in range(8):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST %b HTTP/1.1\r\nHost: x\r\n" % EVENT.encode())
            writer.write(b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
            writers.append(writer)
        await asyncio.sleep(0.05)
        assert gate.in_progress == 0
        assert (await post(surface, EVENT, an_event()))[0] == 200
        for writer in writers:
            writer.close()
        await until_true(lambda: gate.in_progress == 0)


async def test_a_client_that_leaves_gives_its_slot_back() -> None:
    gate = AdmissionGate(TINY)
    async with a_surface(gate=gate) as surface:
        surface.events.gate = asyncio.Event()
        tasks = [
            asyncio.create_task(post(surface, EVENT, an_event(userEmail=f"u{n}@shop.example")))
            for n in range(5)
        ]
        await until_true(lambda: gate.in_progress == 4 and gate.is_crowded)
        for task in tasks:
            task.cancel()
        await until_true(lambda: gate.in_progress == 0 and not gate.is_crowded)

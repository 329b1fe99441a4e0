"""While requests hold every database connection of HTTP, each surface refuses with its own error.

The refusal comes within the bounded wait, and the health endpoint says that the database answers.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ltzd.errors import DatabaseUnavailable
from ltzd.store.database import Connection, Pool
from tests.support.surfaces.event_surface import LiveBrand, an_event_surface, unlimited_rule

BOUNDS = {"http_connections": 2, "http_wait_seconds": 60.0}
WAIT_SECONDS = 0.2
"""The bounded wait, from when all connections are in use: a busy machine may open one later."""
AWAY = "Database unavailable"


@pytest_asyncio.fixture
async def brand(database_url: str, tmp_path: Path) -> AsyncIterator[LiveBrand]:
    """A brand on a surface whose database connections are all in use."""
    async with an_event_surface(database_url, tmp_path, database=BOUNDS) as surface:
        hosts = {"hosts": ("crowded.example",)}
        brand = await surface.brand(unlimited_rule(), site=hosts)
        pool = surface.daemon.pools.http
        held = [await _connection_of(pool) for _ in range(2)]
        pool.wait_seconds = WAIT_SECONDS
        yield brand
        for connection in held:
            await pool.release(connection)


async def _connection_of(pool: Pool) -> Connection:
    """Takes a connection however long others use it, or the pool needs to open it."""
    while True:
        with suppress(DatabaseUnavailable):
            return await pool.take()


EVENT = "/service-api/manual-event"
PREGENERATION = "/service-api/pregenerate-user"
INVALIDATION = "/invalidate-external-api"
LEADERBOARD = "/wp-json/loyalty/v1/leaderboard?metric=ltz_earned&period=week"
ACCOUNT = {"oauth_provider": "discord", "oauth_user_id": "41771983423143936"}


async def test_an_event_is_refused_as_if_the_database_were_away(brand: LiveBrand) -> None:
    answer = await brand.post()
    assert (answer.status, answer.body["success"], answer.error) == (503, False, AWAY)
    assert answer.headers["Retry-After"] == "5"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "expected"),
    [
        (
            "GET",
            "/service-api/events/6f1c2a52-3c1e-4d0a-9d5e-0a2f6f1d8c11",
            None,
            503,
            {"success": False, "error": AWAY},
        ),
        ("POST", INVALIDATION, {"api_url": "https://a.example/x"}, 503, {"error": AWAY}),
        ("GET", LEADERBOARD, None, 500, {"code": "api_error"}),
        ("POST", PREGENERATION, ACCOUNT, 500, {"error": AWAY}),
    ],
)
async def test_each_surface_refuses_in_its_own_form(
    brand: LiveBrand, method: str, path: str, body: Any, status: int, expected: dict[str, Any]
) -> None:
    if body is ACCOUNT:
        body = body | {"brand_id": brand.id}
    headers = {"Host": "crowded.example"} if path == LEADERBOARD else {}
    answer = await brand.surface.ask(method, path, body, headers)
    assert answer.status == status, answer.body
    assert {name: answer.body[name] for name in expected} == expected
    assert answer.headers["Retry-After"] == "5"


async def test_health_tells_a_crowd_from_a_database_that_is_away(brand: LiveBrand) -> None:
    answer = await brand.surface.get("/health")
    assert (answer.status, answer.body["services"]["database"]) == (200, "connected")

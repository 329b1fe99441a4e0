"""The responses that a cache in front of ltzd may store."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.surfaces.http_surface import (
    BRAND_ID,
    SITE_HOST,
    RunningSurfaces,
    a_surface,
)

STATES = {
    "/service-api/health": 200,
    "/service-api/diagnostic": 200,
    "/service-api/debug": 200,
    "/service-api/event-config?brandId=0x" + "fe" * 20: 404,
    "/service-api/events/nothing": 400,
    "/wp-json/loyalty/v1/perks": 200,
    "/wp-json/loyalty/v1/leaderboard": 200,
    "/wp-json/loyalty/v1/me": 401,
    "/relay/0x" + "ab" * 32: 401,
    "/site-links": 401,
    "/check-perk-status": 401,
    "/nowhere": 404,
}


@pytest_asyncio.fixture(scope="module")
async def surface() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as running:
        yield running


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(("path", "status"), STATES.items(), ids=STATES)
async def test_no_cache_stores_a_state(
    surface: RunningSurfaces, method: str, path: str, status: int
) -> None:
    """Some caches store a 200 or 404 that says nothing of caches for two minutes."""
    host = {"Host": SITE_HOST}
    async with surface.client.request(method, surface.url + path, headers=host) as answer:
        assert answer.status == status
        assert answer.headers.getall("Cache-Control") == ["no-store"]


@pytest.mark.parametrize("path", [f"/service-api/event-config?brandId={BRAND_ID}", "/ltzd.js"])
async def test_a_cache_may_store_what_says_for_how_long(
    surface: RunningSurfaces, path: str
) -> None:
    async with surface.client.get(surface.url + path) as answer:
        (policy,) = answer.headers.getall("Cache-Control")
        assert policy.startswith("public, max-age=")

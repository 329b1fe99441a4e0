"""The origins whose pages may read responses (spec 5, CORS)."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from multidict import CIMultiDictProxy

from ltzd.http.services import HttpPolicy
from tests.support.surfaces.http_surface import BRAND_ID, RunningSurfaces, a_surface, an_event

PATHS = ["/service-api/manual-event", "/service-api/health", "/relay", "/", "/nowhere/at/all"]


@pytest_asyncio.fixture
async def surface() -> AsyncIterator[RunningSurfaces]:
    policy = HttpPolicy(own_origins=frozenset({"https://ltz.example", "http://127.0.0.1:8000"}))
    async with a_surface(policy) as surface:
        yield surface


async def ask(
    surface: RunningSurfaces, path: str, origin: str | None, method: str = "OPTIONS"
) -> tuple[int, CIMultiDictProxy[str]]:
    headers = {} if origin is None else {"Origin": origin}
    async with surface.client.request(method, surface.url + path, headers=headers) as answer:
        await answer.read()
        return answer.status, answer.headers


@pytest.mark.parametrize("path", PATHS)
async def test_a_preflight_is_204_on_every_path(surface: RunningSurfaces, path: str) -> None:
    status, headers = await ask(surface, path, "https://shop.example")
    assert status == 204
    assert headers["Access-Control-Allow-Origin"] == "https://shop.example"
    assert headers["Access-Control-Allow-Methods"] == "GET, POST, OPTIONS"
    assert headers["Access-Control-Allow-Headers"] == "Content-Type, Authorization"
    assert headers["Access-Control-Allow-Credentials"] == "true"
    assert headers["Access-Control-Max-Age"] == "600"
    assert headers["Vary"] == "Origin"
    assert "Content-Length" not in headers


@pytest.mark.parametrize(
    "origin",
    [
        "https://shop.example",
        "https://www.shop.example",
        "https://a.b.shop.example:8443",
        "https://ltz.example",
        "http://127.0.0.1:8000",
    ],
)
async def test_brands_subdomains_and_our_own_pages_are_granted(
    surface: RunningSurfaces, origin: str
) -> None:
    for method, path in (("OPTIONS", "/x"), ("GET", "/service-api/health"), ("GET", "/nowhere")):
        _, headers = await ask(surface, path, origin, method)
        assert headers.getall("Access-Control-Allow-Origin") == [origin]
        assert "Retry-After" in headers["Access-Control-Expose-Headers"]


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "https://evil.example",
        "http://shop.example",
        "https://evilshop.example",
        "https://shop.example.evil.example",
        "https://shop.example@evil.example",
        "https://shop.example/",
        "https://shop.example:",
        "https://",
        "*",
        "http://localhost:3000",
        "file://",
    ],
)
async def test_others_get_no_allow_origin_but_vary(
    surface: RunningSurfaces, origin: str | None
) -> None:
    for method, path in (("OPTIONS", "/x"), ("GET", "/service-api/health"), ("GET", "/nowhere")):
        _, headers = await ask(surface, path, origin, method)
        assert "Access-Control-Allow-Origin" not in headers
        assert headers["Vary"] == "Origin"


async def test_loopback_pages_are_granted_in_dev_only() -> None:
    async with a_surface(HttpPolicy(allow_loopback_origins=True)) as dev:
        for origin in ("http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]:80"):
            _, headers = await ask(dev, "/x", origin)
            assert headers["Access-Control-Allow-Origin"] == origin
        _, headers = await ask(dev, "/x", "http://localhost.evil.example")
        assert "Access-Control-Allow-Origin" not in headers


async def test_refusals_can_be_read_by_the_brands_pages(surface: RunningSurfaces) -> None:
    origin = {"Origin": "https://shop.example"}
    for body, status in ((b"{", 400), (b"x" * 20_000, 413)):
        async with surface.client.post(
            surface.url + "/service-api/manual-event", data=body, headers=origin
        ) as answer:
            assert answer.status == status
            assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"
    surface.events.refusal = ValueError("unforeseen")
    async with surface.client.post(
        surface.url + "/service-api/manual-event", json=an_event(), headers=origin
    ) as answer:
        assert answer.status == 500
        assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"


async def test_a_cached_configuration_varies_by_origin(surface: RunningSurfaces) -> None:
    path = f"/service-api/event-config?brandId={BRAND_ID}"
    _, headers = await ask(surface, path, "https://shop.example", "GET")
    assert (headers["Vary"], headers["Cache-Control"]) == ("Origin", "public, max-age=300")

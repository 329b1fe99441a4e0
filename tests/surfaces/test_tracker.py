"""/ltzd.js as a server answers it. tests/browser/test_tracker.py runs it in a page."""

from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from ltzd.http.tracker.handlers import ETAG
from tests.support.surfaces.http_surface import RunningSurfaces, a_surface

MOST_BYTES = 5000


@pytest_asyncio.fixture
async def surface() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


async def load(
    surface: RunningSurfaces, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, bytes, Mapping[str, str]]:
    url = f"{surface.url}/ltzd.js"
    async with surface.client.request(method, url, headers=headers) as answer:
        return answer.status, await answer.read(), answer.headers


async def test_the_script_is_small_and_may_be_cached_by_its_tag(surface: RunningSurfaces) -> None:
    status, body, headers = await load(surface)
    assert status == 200
    assert 1000 < len(body) < MOST_BYTES
    assert headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert headers["Cache-Control"] == "public, max-age=3600"
    assert headers["ETag"] == ETAG
    assert headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Set-Cookie" not in headers


@pytest.mark.parametrize("known", [ETAG, f"W/{ETAG}", f'"other", {ETAG}', "*"])
async def test_a_caller_with_this_version_gets_no_body(
    surface: RunningSurfaces, known: str
) -> None:
    status, body, headers = await load(surface, {"If-None-Match": known})
    assert (status, body) == (304, b"")
    assert headers["ETag"] == ETAG
    assert headers["Cache-Control"] == "public, max-age=3600"


@pytest.mark.parametrize("known", ['"other"', ETAG.strip('"'), '""'])
async def test_a_caller_with_another_version_gets_the_script(
    surface: RunningSurfaces, known: str
) -> None:
    status, body, _ = await load(surface, {"If-None-Match": known})
    assert status == 200
    assert body.startswith(b"// ltzd.js")


async def test_a_head_request_tells_the_tag_without_the_script(surface: RunningSurfaces) -> None:
    status, body, headers = await load(surface, method="HEAD")
    assert (status, body, headers["ETag"]) == (200, b"", ETAG)


async def test_the_script_holds_no_cookie_and_no_storage(surface: RunningSurfaces) -> None:
    _, body, _ = await load(surface)
    for word in (b"document.cookie", b"localStorage", b"sessionStorage", b"indexedDB"):
        assert word not in body

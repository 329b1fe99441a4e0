"""Invalidation over HTTP: both endpoints, their keys, limits, fields and the error body of 7.6."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from ipaddress import ip_network

import pytest
import pytest_asyncio

from ltzd.errors import DatabaseUnavailable
from ltzd.http.constraints.errors import InvalidateCacheError
from ltzd.http.constraints.handlers import KEYED_PATH, PATH
from ltzd.http.constraints.models import InvalidateCacheResponse
from ltzd.http.requests.client_address import Proxies
from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT
from ltzd.http.services import HttpPolicy
from ltzd.rules.brands.value_types import MAX_ID
from ltzd.values import address_of
from tests.support.surfaces.http_surface import (
    API_KEY,
    BRAND_ID,
    CHECKSUMMED_WALLET,
    OPERATOR,
    WALLET,
    RunningSurfaces,
    a_surface,
)
from tests.support.surfaces.json_response import WINDOW, JsonResponse

URL = "https://api.example/check?user={user_address}"
BOTH = pytest.mark.parametrize("path", [PATH, KEYED_PATH])
MISSING = {"success": False, "error": "Missing required fields: api_url"}
ADDRESS_RULE = "user_address: must be an address, 0x and 40 hex digits"
COLLECTION_RULE = f"collection_id: must be a whole number from 1 to {MAX_ID}"


@pytest_asyncio.fixture(scope="module")
async def running() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


@pytest.fixture
def surface(running: RunningSurfaces) -> RunningSurfaces:
    running.reset_perks()
    return running


@dataclass(frozen=True)
class ConstraintResponse(JsonResponse):
    @property
    def error(self) -> tuple[int, str]:
        return self.status, self.body["error"]


async def post(
    surface: RunningSurfaces, path: str = KEYED_PATH, payload: object = None, **headers: str
) -> ConstraintResponse:
    """Send `payload` as JSON, bytes unchanged. The brand's key is the default."""
    body = {"api_url": URL} if payload is None else payload
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Authorization": f"Bearer {API_KEY}", "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {name: value for name, value in sent.items() if value}
    async with surface.client.post(
        surface.url + path, data=raw, headers=sent, skip_auto_headers=("Content-Type",)
    ) as reply:
        answer = ConstraintResponse(reply.status, await reply.json(), reply.headers)
    model = InvalidateCacheResponse if reply.status == 200 else InvalidateCacheError
    model.model_validate(answer.body)
    return answer


async def keyless(
    surface: RunningSurfaces, payload: object = None, **headers: str
) -> ConstraintResponse:
    return await post(surface, PATH, payload, **({"Authorization": ""} | headers))


def some_results(surface: RunningSurfaces) -> None:
    """Results of the brand for two users in two collections, and of another brand for the URL."""
    brand = address_of(BRAND_ID)
    surface.constraints.cached = {
        (brand, URL, WALLET, 7),
        (brand, URL, OPERATOR, 7),
        (brand, URL, WALLET, 8),
        (brand, "https://api.example/other", WALLET, 7),
        (OPERATOR, URL, WALLET, 9),
    }


# --- answers ------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("narrowed", "count"),
    [
        ({}, 3),
        ({"user_address": CHECKSUMMED_WALLET}, 2),
        ({"user_address": CHECKSUMMED_WALLET.lower()}, 2),
        ({"collection_id": 8}, 1),
        ({"collection_id": 8.0}, 1),
        ({"user_address": CHECKSUMMED_WALLET, "collection_id": 7}, 1),
        ({"collection_id": MAX_ID}, 0),
        ({"user_address": None, "collection_id": None, "something": "else"}, 3),
    ],
    ids=str,
)
async def test_a_key_invalidates_its_brands_results_as_narrowly_as_it_says(
    surface: RunningSurfaces, path: str, narrowed: dict[str, object], count: int
) -> None:
    some_results(surface)
    answer = await post(surface, path, {"api_url": URL} | narrowed)
    results = "result" if count == 1 else "results"
    assert (answer.status, answer.body) == (
        200,
        {
            "success": True,
            "invalidated_count": count,
            "message": f"Invalidated {count} cached {results}",
        },
    )
    assert len(surface.constraints.cached) == 5 - count


async def test_without_a_key_the_results_of_every_brand_with_this_url_go(
    surface: RunningSurfaces,
) -> None:
    some_results(surface)
    assert (await keyless(surface)).body["invalidated_count"] == 4
    assert (await keyless(surface)).body["invalidated_count"] == 0


async def test_every_field_reaches_the_action(surface: RunningSurfaces) -> None:
    payload = {"api_url": URL, "user_address": CHECKSUMMED_WALLET, "collection_id": 7}
    await post(surface, payload=payload)
    await keyless(surface)
    assert surface.constraints.requests == [(API_KEY, URL, WALLET, 7), (None, URL, None, None)]


# --- keys ---------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    "payload",
    [{"api_url": URL}, {}, {"api_url": 5}, {"api_url": URL, "collection_id": "x"}],
    ids=str,
)
async def test_a_wrong_key_is_401_whatever_the_fields_are(
    surface: RunningSurfaces, path: str, payload: object
) -> None:
    some_results(surface)
    answer = await post(surface, path, payload, Authorization="Bearer ltzak_wrong")
    assert (answer.status, answer.body) == (
        401,
        {"success": False, "error": "The API key is not valid"},
    )
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert len(surface.constraints.cached) == 5


@BOTH
@pytest.mark.parametrize("given", ["Bearer", "Bearer ", "Basic eA==", API_KEY, "Bearer a b"])
async def test_a_key_of_another_form_is_401(
    surface: RunningSurfaces, path: str, given: str
) -> None:
    answer = await post(surface, path, {}, Authorization=given)
    assert answer.error == (401, "Authorization must be given once, as Bearer and a token")
    assert surface.constraints.requests == []


async def test_the_second_form_needs_a_key(surface: RunningSurfaces) -> None:
    answer = await post(surface, KEYED_PATH, {}, Authorization="")
    assert answer.error == (401, "Authorization must be given once, as Bearer and a token")
    assert surface.constraints.requests == []


# --- fields -------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    "payload",
    [{}, {"api_url": None}, {"api_url": ""}, {"apiUrl": URL, "collection_id": "x"}],
    ids=str,
)
async def test_a_missing_url_is_named(surface: RunningSurfaces, path: str, payload: object) -> None:
    some_results(surface)
    answer = await post(surface, path, payload)
    assert (answer.status, answer.body) == (400, MISSING)
    assert len(surface.constraints.cached) == 5


async def test_a_missing_url_is_named_without_a_key_too(surface: RunningSurfaces) -> None:
    some_results(surface)
    answer = await keyless(surface, {"user_address": CHECKSUMMED_WALLET})
    assert (answer.status, answer.body) == (400, MISSING)
    assert len(surface.constraints.cached) == 5


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        *(({"api_url": value}, "api_url: must be a string") for value in (5, False, 0, [URL])),
        *(({"user_address": value}, ADDRESS_RULE) for value in ("", "0x12", BRAND_ID[2:])),
        ({"user_address": 5}, "user_address: must be a string"),
        *(({"collection_id": value}, COLLECTION_RULE) for value in (0, -1, MAX_ID + 1, 2**256)),
        *(
            ({"collection_id": value}, "collection_id: must be an integer")
            for value in ("7", 7.5, float(2**53), True, [7])
        ),
    ],
    ids=str,
)
async def test_a_bad_field_is_named_with_its_rule(
    surface: RunningSurfaces, changes: dict[str, object], fault: str
) -> None:
    some_results(surface)
    for ask in (post, keyless):
        answer = await ask(surface, payload={"api_url": URL} | changes)
        assert (answer.status, answer.body) == (400, {"success": False, "error": fault})
    assert len(surface.constraints.cached) == 5


async def test_every_fault_is_told_at_once(surface: RunningSurfaces) -> None:
    answer = await post(surface, payload={"api_url": 5, "user_address": "0x", "collection_id": 0})
    assert answer.error == (400, f"api_url: must be a string; {ADDRESS_RULE}; {COLLECTION_RULE}")


@BOTH
@pytest.mark.parametrize(
    ("raw", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"", {}, 400),
        (b"[]", {}, 400),
        (b"{}", {"Content_Type": "text/plain"}, 400),
        (b"{}", {"Content_Type": ""}, 400),
        (b"{}", {"Content_Encoding": "gzip"}, 400),
        (b" " * (EVENT_HANDLER_LIMIT + 1), {}, 413),
    ],
)
async def test_what_is_no_json_is_refused_before_the_key_is_looked_at(
    surface: RunningSurfaces, path: str, raw: bytes, headers: dict[str, str], status: int
) -> None:
    answer = await post(surface, path, raw, Authorization="Bearer wrong", **headers)
    assert answer.status == status
    assert surface.constraints.requests == []


# --- limits -------------------------------------------------------------------------------------


async def test_without_a_key_an_address_may_ask_sixty_times_a_minute(
    surface: RunningSurfaces,
) -> None:
    for number in range(60):
        answer = await keyless(surface, {} if number % 2 else b"{")
        assert (answer.status, answer.window) == (400, (60, 59 - number))
    answer = await keyless(surface)
    assert (answer.status, answer.window) == (429, (60, 0))
    seconds = int(answer.headers["Retry-After"])
    assert 1 <= seconds <= 60
    assert answer.body == {
        "success": False,
        "error": "Rate limit exceeded: without a key an address may ask 60 times a minute; "
        f"try again in {seconds} seconds",
    }
    assert surface.constraints.requests.count((None, URL, None, None)) == 0


async def test_who_has_a_key_is_not_limited(surface: RunningSurfaces) -> None:
    for _ in range(61):
        await keyless(surface)
    for path in (PATH, KEYED_PATH):
        answer = await post(surface, path)
        assert answer.status == 200
        assert not set(WINDOW) & set(answer.headers)


async def test_the_limit_is_the_clients_own_and_not_its_proxys() -> None:
    networks = (ip_network("127.0.0.0/8"),)
    policy = HttpPolicy(proxies=Proxies(1, networks), grace_seconds=2.0)
    async with a_surface(policy) as surface:
        for _ in range(2):
            first = await keyless(surface, X_Forwarded_For="203.0.113.5")
        other = await keyless(surface, X_Forwarded_For="203.0.113.6")
    assert (first.window, other.window) == ((60, 58), (60, 59))


# --- the envelope -------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("refusal", "status", "error"),
    [
        (DatabaseUnavailable("at db.internal"), 503, "Database unavailable"),
        (ValueError("unforeseen"), 500, "Internal server error"),
    ],
    ids=["database", "unforeseen"],
)
async def test_what_goes_wrong_here_is_told_in_the_same_envelope(
    surface: RunningSurfaces, path: str, refusal: Exception, status: int, error: str
) -> None:
    surface.constraints.refusal = refusal
    answer = await post(surface, path)
    assert (answer.status, answer.body) == (status, {"success": False, "error": error})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", PATH, 405),
        ("PUT", KEYED_PATH, 405),
        ("POST", f"{PATH}/more", 404),
        ("POST", "/constraint-updater", 404),
        ("GET", "/constraint-updater/other", 404),
    ],
)
async def test_what_no_route_takes_is_told_in_the_same_envelope(
    surface: RunningSurfaces, method: str, path: str, status: int
) -> None:
    async with surface.client.request(method, surface.url + path) as reply:
        body = await reply.json()
    assert (reply.status, set(body), body["success"]) == (status, {"success", "error"}, False)

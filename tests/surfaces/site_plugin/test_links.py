"""/site-links over HTTP: the owner's endpoints, with the relayer's error body and checks.

`FakeSite` stands behind them; `test_log_ins.py` has the real parts.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from ltzd.cache.rate_limits import RateLimits
from ltzd.errors import DatabaseUnavailable, IdentityUnavailable, RateLimited, ValidationFailed
from ltzd.http.openapi.operations import Operation
from ltzd.http.relayer.errors import RelayerError
from ltzd.http.requests.rate_limits import PER_CLIENT
from ltzd.http.site_plugin.link_models import CreateSiteLinkBody
from ltzd.http.site_plugin.link_operations import OPERATIONS
from ltzd.http.site_plugin.links import BODY_LIMIT
from tests.support.surfaces.http_surface import (
    CHECKSUMMED_WALLET,
    LINK_CODE,
    OTHER_TOKEN,
    SITE_HOST,
    TOKEN,
    RunningSurfaces,
    a_surface,
)
from tests.support.surfaces.openapi import assert_examples_fit

BRANDS_PAGE = "https://www.shop.example"
GOOD = {"host": SITE_HOST, "dailyAllowance": 40}


@pytest_asyncio.fixture(scope="module")
async def running() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


@pytest.fixture
def surface(running: RunningSurfaces) -> RunningSurfaces:
    running.reset_site()
    vars(running.limits).update(vars(RateLimits()))
    return running


async def ask(
    surface: RunningSurfaces,
    method: str,
    path: str = "",
    payload: object = None,
    token: str | None = TOKEN,
    **headers: str,
) -> tuple[int, Any, Any]:
    sent = headers if token is None else {"Authorization": f"Bearer {token}"} | headers
    url = f"{surface.url}/site-links{path}"
    async with surface.client.request(method, url, json=payload, headers=sent) as answer:
        body = await answer.json() if await answer.read() else None
        return answer.status, body, answer.headers


async def linked(surface: RunningSurfaces) -> None:
    surface.site.codes[LINK_CODE] = ("user", 40)
    await surface.site.link(surface.site.visitor, LINK_CODE)
    surface.site.calls.clear()
    surface.site.requests.clear()


# --- good answers -----------------------------------------------------------------------------


async def test_an_owner_is_told_a_code_once(surface: RunningSurfaces) -> None:
    status, body, headers = await ask(surface, "POST", payload=GOOD)
    assert (status, body) == (
        201,
        {
            "code": LINK_CODE,
            "host": SITE_HOST,
            "dailyAllowance": 40,
            "expiresAt": "2026-03-14T09:40:00.000Z",
        },
    )
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-RateLimit-Limit"] == "100"
    assert surface.site.requests == [("user", SITE_HOST, 40)]


@pytest.mark.parametrize(
    ("payload", "allowance"),
    [
        ({"host": SITE_HOST}, 500),
        ({"host": SITE_HOST, "dailyAllowance": None}, 500),
        ({"host": SITE_HOST, "dailyAllowance": 0}, 0),
        ({"host": SITE_HOST, "dailyAllowance": 5.0}, 5),
        ({"host": "Site.EXAMPLE", "dailyAllowance": 1_000_000, "more": 1}, 1_000_000),
    ],
)
async def test_an_allowance_is_500_where_none_is_named(
    surface: RunningSurfaces, payload: object, allowance: int
) -> None:
    status, body, _ = await ask(surface, "POST", payload=payload)
    assert (status, body["dailyAllowance"], body["host"]) == (201, allowance, SITE_HOST)


async def test_an_owner_sees_his_own_links_and_ends_them(surface: RunningSurfaces) -> None:
    assert (await ask(surface, "GET"))[:2] == (200, {"links": []})
    await linked(surface)
    link = {
        "host": SITE_HOST,
        "username": "ann",
        "walletAddress": CHECKSUMMED_WALLET,
        "dailyAllowance": 40,
        "linkedAt": "2026-03-14T09:30:00.000Z",
        "expiresAt": "2026-09-10T09:30:00.000Z",
    }
    assert (await ask(surface, "GET"))[:2] == (200, {"links": [link]})
    assert (await ask(surface, "GET", token=OTHER_TOKEN))[:2] == (200, {"links": []})

    assert (await ask(surface, "DELETE", f"/{SITE_HOST}", token=OTHER_TOKEN))[0] == 404
    assert (await ask(surface, "DELETE", "/SITE.example"))[:2] == (204, None)
    status, body, _ = await ask(surface, "DELETE", f"/{SITE_HOST}")
    assert (status, body["code"]) == (404, "NOT_FOUND")
    assert (await ask(surface, "GET"))[:2] == (200, {"links": []})


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "code", "errors"),
    [
        ({}, "MISSING_FIELDS", None),
        ({"host": None}, "MISSING_FIELDS", None),
        ({"host": 7}, "INVALID_FIELDS", ["host: must be a string"]),
        ({"host": SITE_HOST, "dailyAllowance": -1}, "INVALID_FIELDS", None),
        (
            {"host": SITE_HOST, "dailyAllowance": 1_000_001},
            "INVALID_FIELDS",
            ["dailyAllowance: must be at most 1000000"],
        ),
        ({"host": SITE_HOST, "dailyAllowance": 1.5}, "INVALID_FIELDS", None),
        ({"host": SITE_HOST, "dailyAllowance": float(2**53)}, "INVALID_FIELDS", None),
        ({"host": SITE_HOST, "dailyAllowance": "5"}, "INVALID_FIELDS", None),
        ({"host": SITE_HOST, "dailyAllowance": True}, "INVALID_FIELDS", None),
        ({"host": SITE_HOST, "dailyAllowance": 10**400}, "INVALID_FIELDS", None),
        ({"host": "https://site.example"}, "INVALID_FIELDS", None),
        ({"host": "site.example:80"}, "INVALID_FIELDS", None),
        ({"host": "10.0.0.1"}, "INVALID_FIELDS", None),
        ({"host": ""}, "INVALID_FIELDS", None),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_what_is_malformed_is_named(
    surface: RunningSurfaces, payload: object, code: str, errors: list[str] | None
) -> None:
    status, body, _ = await ask(surface, "POST", payload=payload)
    assert (status, body["code"]) in {(400, code), (400, "INVALID_BODY")}
    if errors is not None:
        assert body["details"]["errors"] == errors
    assert surface.site.requests == []


async def test_a_host_of_no_site_is_not_found(surface: RunningSurfaces) -> None:
    status, body, _ = await ask(surface, "POST", payload={"host": "other.example"})
    assert (status, body) == (
        404,
        {"error": "No brand has a site at this host", "code": "NOT_FOUND"},
    )


@pytest.mark.parametrize(
    ("method", "path", "payload"),
    [("POST", "", GOOD), ("GET", "", None), ("DELETE", f"/{SITE_HOST}", None)],
)
async def test_only_an_owners_token_counts_and_foreign_pages_do_not(
    surface: RunningSurfaces, method: str, path: str, payload: object
) -> None:
    for token in (None, "", "header.wrong.signature"):
        status, body, headers = await ask(surface, method, path, payload, token)
        assert (status, body["code"]) == (401, "UNAUTHORIZED")
        assert headers["WWW-Authenticate"] == "Bearer"
    for origin in ("https://evil.example", "null"):
        status, body, _ = await ask(surface, method, path, payload, Origin=origin)
        assert (status, body["code"]) == (403, "VALIDATION_FAILED")
    assert surface.site.requests == []
    status, _, headers = await ask(surface, method, path, payload, Origin=BRANDS_PAGE)
    assert status in {200, 201, 404}
    assert headers["Access-Control-Allow-Origin"] == BRANDS_PAGE


async def test_a_brands_page_may_ask_for_every_method(surface: RunningSurfaces) -> None:
    for path, methods in (
        ("", "GET, POST, OPTIONS"),
        (f"/{SITE_HOST}", "GET, POST, DELETE, OPTIONS"),
    ):
        status, _, headers = await ask(surface, "OPTIONS", path, token=None, Origin=BRANDS_PAGE)
        assert (status, headers["Access-Control-Allow-Methods"]) == (204, methods)
        assert headers["Access-Control-Allow-Origin"] == BRANDS_PAGE
        assert "Authorization" in headers["Access-Control-Allow-Headers"]


async def test_relays_and_links_count_together_for_each_address(surface: RunningSurfaces) -> None:
    left = PER_CLIENT.relayer.max_hits
    for path in ("/relay", "/site-links", "/site-links/a.example", "/site-links/nothing/here"):
        async with surface.client.get(surface.url + path) as answer:
            left -= 1
            assert answer.headers["X-RateLimit-Remaining"] == str(left)
    for _ in range(left):
        assert (await ask(surface, "GET"))[0] == 200
    status, body, headers = await ask(surface, "GET")
    assert (status, body["code"]) == (429, "RATE_LIMIT_EXCEEDED")
    assert 1 <= int(headers["Retry-After"]) <= 60


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (ValidationFailed("The token's user has no wallet yet"), 403, "VALIDATION_FAILED"),
        (RateLimited("Too many", limit=5, retryAfterSeconds=9), 429, "RATE_LIMIT_EXCEEDED"),
        (IdentityUnavailable("secret host"), 500, "IDENTITY_UNAVAILABLE"),
        (DatabaseUnavailable("secret host"), 503, "DATABASE_UNAVAILABLE"),
        (ZeroDivisionError("secret"), 500, "INTERNAL_ERROR"),
    ],
)
async def test_what_goes_wrong_is_told_in_the_relays_envelope(
    surface: RunningSurfaces, refusal: Exception, status: int, code: str
) -> None:
    surface.site.refusal = refusal
    seen, body, _ = await ask(surface, "POST", payload=GOOD)
    assert (seen, body["code"]) == (status, code)
    assert "secret" not in str(body)
    RelayerError.model_validate(body)


async def test_a_body_has_a_limit_and_is_json(surface: RunningSurfaces) -> None:
    status, body, _ = await ask(surface, "POST", payload=GOOD | {"x": "x" * BODY_LIMIT})
    assert (status, body["code"]) == (413, "PAYLOAD_TOO_LARGE")
    status, body, _ = await ask(surface, "POST", payload=["host"])
    assert (status, body["code"]) == (400, "INVALID_BODY")


async def test_other_methods_are_not_allowed(surface: RunningSurfaces) -> None:
    for method, path in (("PUT", ""), ("DELETE", ""), ("POST", f"/{SITE_HOST}")):
        status, body, _ = await ask(surface, method, path, {})
        assert (status, body["code"]) == (405, "METHOD_NOT_ALLOWED")


# --- the document -----------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.method)
def test_each_answer_has_examples_that_fit_its_model(operation: Operation) -> None:
    assert_examples_fit(operation)
    for status, response in operation.responses.items():
        assert (status >= 400) is (response.model is RelayerError)


def test_the_examples_of_requests_are_good_requests() -> None:
    for body in OPERATIONS[0].request_examples.values():
        CreateSiteLinkBody.from_json(dict(body))

"""CORS on every path and every response, errors included (spec 5)."""

from typing import Any

import pytest

from tests.support.surfaces.event_surface import (
    OWN_ORIGIN,
    PREFIX,
    EventHandlerResponse,
    EventSurface,
    LiveBrand,
    unlimited_rule,
)

PATHS = [
    f"{PREFIX}/manual-event",
    f"{PREFIX}/bulk-events",
    f"{PREFIX}/event-config",
    f"{PREFIX}/events/00000000-0000-4000-8000-000000000000",
    f"{PREFIX}/events/x",
    f"{PREFIX}/health",
    f"{PREFIX}/diagnostic",
    f"{PREFIX}/debug",
    f"{PREFIX}/no-such-path",
    PREFIX,
    "/",
    "/no/such/path",
    "/docs",
    "/docs/openapi.json",
]
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
EXPOSED = {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"}


async def a_brand(surface: EventSurface) -> LiveBrand:
    return await surface.brand(unlimited_rule(), domains=("shop.example", "münchen.example"))


def assert_granted(answer: EventHandlerResponse, origin: str) -> None:
    headers: Any = answer.headers
    assert headers.getall("Access-Control-Allow-Origin") == [origin], answer
    assert headers.getall("Access-Control-Allow-Credentials") == ["true"]
    assert_varies(answer)
    assert {
        name.strip().lower() for name in headers["Access-Control-Expose-Headers"].split(",")
    } == EXPOSED


def assert_varies(answer: EventHandlerResponse) -> None:
    varied = ",".join(answer.headers.getall("Vary"))  # type: ignore[attr-defined]
    assert "origin" in {name.strip().lower() for name in varied.split(",")}


def assert_not_granted(answer: EventHandlerResponse) -> None:
    assert "Access-Control-Allow-Origin" not in answer.headers, answer
    assert_varies(answer)


@pytest.mark.parametrize("path", PATHS)
async def test_a_preflight_is_204_with_all_headers_on_every_path(
    event_surface: EventSurface, path: str
) -> None:
    await a_brand(event_surface)
    for method in ("POST", "GET", "DELETE"):
        headers = {
            "Origin": "https://shop.example",
            "Access-Control-Request-Method": method,
            "Access-Control-Request-Headers": "content-type,authorization,x-anything",
        }
        answer = await event_surface.ask("OPTIONS", path, headers=headers)
        assert (answer.status, answer.raw) == (204, b"")
        assert_granted(answer, "https://shop.example")
        assert answer.headers["Access-Control-Allow-Methods"] == "GET, POST, OPTIONS"
        assert answer.headers["Access-Control-Allow-Headers"] == "Content-Type, Authorization"
        assert answer.headers["Access-Control-Max-Age"] == "600"


@pytest.mark.parametrize("path", PATHS)
async def test_a_preflight_of_nobody_or_a_stranger_is_204_without_a_grant(
    event_surface: EventSurface, path: str
) -> None:
    for headers in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
        answer = await event_surface.ask("OPTIONS", path, headers=headers)
        assert (answer.status, answer.raw) == (204, b"")
        assert_not_granted(answer)


@pytest.mark.parametrize("path", PATHS)
async def test_every_answer_of_every_path_and_method_is_granted_to_a_brand(
    event_surface: EventSurface, path: str
) -> None:
    await a_brand(event_surface)
    for method in METHODS:
        granted = await event_surface.ask(
            method, path, headers={"Origin": "https://www.shop.example"}
        )
        assert granted.status < 500
        assert_granted(granted, "https://www.shop.example")
        stranger = await event_surface.ask(method, path, headers={"Origin": "https://evil.example"})
        assert_not_granted(stranger)
        assert_not_granted(await event_surface.ask(method, path))


@pytest.mark.parametrize(
    "origin",
    [
        "https://shop.example",
        "https://shop.example:8443",
        "https://a.b.shop.example",
        "https://xn--mnchen-3ya.example",
        "https://www.xn--mnchen-3ya.example",
        OWN_ORIGIN,
    ],
)
async def test_brands_subdomains_and_our_own_pages_are_granted(
    event_surface: EventSurface, origin: str
) -> None:
    await a_brand(event_surface)
    assert_granted(
        await event_surface.ask("GET", f"{PREFIX}/health", headers={"Origin": origin}), origin
    )


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "*",
        "null",
        "http://shop.example",
        "ftp://shop.example",
        "https://evilshop.example",
        "https://shop.example.evil.example",
        "https://example",
        "https://shop.example/",
        "https://shop.example/x",
        "https://shop.example?x",
        "https://user@shop.example",
        "https://shop.example@evil.example",
        "https://shop.example:x",
        "https://shop.example https://evil.example",
        "https://shop.example, https://evil.example",
        "https://shop.example\\.evil.example",
        "https://shop_example",
        "https://münchen.example",  # a browser writes its ASCII form
        "//shop.example",
        "shop.example",
        "HTTPS://shop.example",
        OWN_ORIGIN.replace("https", "http"),
        OWN_ORIGIN + ":444",
        OWN_ORIGIN.replace("app.", "x.app."),
        "http://localhost:3000",
        "https://localhost",
        "http://127.0.0.1",
        "https://[::1]",
    ],
)
async def test_everybody_else_gets_no_allow_origin(
    event_surface: EventSurface, origin: str
) -> None:
    await a_brand(event_surface)
    for method, path in (("GET", f"{PREFIX}/health"), ("OPTIONS", f"{PREFIX}/manual-event")):
        raw = (
            {"Origin": origin}
            if origin.isascii()
            else {"Origin": origin.encode().decode("latin-1")}
        )
        assert_not_granted(await event_surface.ask(method, path, headers=raw))


async def test_no_answer_ever_grants_all_origins(event_surface: EventSurface) -> None:
    await a_brand(event_surface)
    for path in PATHS:
        for method in METHODS:
            for origin in ("https://shop.example", "https://evil.example", "*", "null"):
                answer = await event_surface.ask(method, path, headers={"Origin": origin})
                assert answer.headers.get("Access-Control-Allow-Origin") != "*"


async def test_each_kind_of_refusal_can_be_read_by_the_brands_pages(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(
        unlimited_rule(),
        {"type": "custom_a", "reward": 0, "cooldown_hours": 1, "max_claims_per_user": -1},
    )
    origin = f"https://{brand.domain}"
    email = "cors@mail.example"
    body = brand.body
    await brand.post(email)
    await brand.post(email, eventType="custom_a")
    duplicate = body(email)
    seen = set()

    async def refused(raw: object) -> None:
        answer = await event_surface.post(raw, Origin=origin)
        assert_granted(answer, origin)
        seen.add(answer.status)

    await refused(b"{")
    await refused(body() | {"userEmail": 5})
    await refused(body(domain="evil.example"))
    await refused(body(brandId="0x" + "fe" * 20))
    await refused(duplicate)
    await refused(b"x" * 20_000)
    await brand.let_time_pass(60)
    await refused(body(email, eventType="custom_a"))
    await refused(body())
    assert seen == {400, 403, 409, 413, 429, 200}


async def test_a_brand_that_comes_or_goes_is_granted_or_not_within_the_change(
    event_surface: EventSurface,
) -> None:
    origin = {"Origin": "https://fresh.example"}
    assert_not_granted(await event_surface.ask("GET", f"{PREFIX}/health", headers=origin))
    brand = await event_surface.brand(unlimited_rule(), domains=("fresh.example",))
    assert_granted(
        await event_surface.ask("GET", f"{PREFIX}/health", headers=origin), origin["Origin"]
    )
    await brand.change(domains=("other-fresh.example",))
    assert_not_granted(await event_surface.ask("GET", f"{PREFIX}/health", headers=origin))

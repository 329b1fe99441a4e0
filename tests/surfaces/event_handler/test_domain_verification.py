"""verify-dns over HTTP: its responses, fields, limit and the error body of spec 7.1."""

import asyncio
import json
from collections.abc import AsyncIterator
from ipaddress import ip_network

import pytest
import pytest_asyncio
import requests
import schemathesis
from msgspec.structs import replace
from schemathesis import GenerationMode

from ltzd.cache.rate_limits import RateLimit
from ltzd.errors import DatabaseUnavailable, DnsUnavailable
from ltzd.http.event_handler.domain_verification import (
    OPERATIONS,
    PATH,
    VerifyDnsBody,
    VerifyDnsResponse,
)
from ltzd.http.event_handler.errors import EventHandlerError
from ltzd.http.requests.client_address import Proxies
from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT
from ltzd.http.requests.rate_limits import PER_CLIENT
from ltzd.http.services import HttpPolicy
from ltzd.values import address_of
from tests.support.surfaces.http_surface import BRAND_ID, RunningSurfaces, a_surface
from tests.support.surfaces.json_response import JsonResponse
from tests.support.surfaces.openapi import assert_examples_fit
from tests.surfaces.test_schemathesis import CHECKS, Run, random_cases

DOMAIN = "shop.example"
SUFFIX = "domain: must be a name below a public suffix, such as shop.example"


@pytest_asyncio.fixture(scope="module")
async def running() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


@pytest.fixture
def surface(running: RunningSurfaces) -> RunningSurfaces:
    running.reset_domains()
    return running


async def post(surface: RunningSurfaces, payload: object = None, **headers: str) -> JsonResponse:
    """Send `payload` as JSON; bytes are sent unchanged."""
    body = {"domain": DOMAIN} if payload is None else payload
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {name: value for name, value in sent.items() if value}
    async with surface.client.post(
        surface.url + PATH, data=raw, headers=sent, skip_auto_headers=("Content-Type",)
    ) as reply:
        answer = JsonResponse(reply.status, await reply.json(), reply.headers)
    (VerifyDnsResponse if reply.status == 200 else EventHandlerError).model_validate(answer.body)
    return answer


async def refused(surface: RunningSurfaces, payload: object) -> list[str]:
    """The faults of a 400. No resolver was asked."""
    answer = await post(surface, payload)
    assert (answer.status, answer.body["error"]) == (400, "Validation failed")
    assert surface.domains.requests == []
    faults: list[str] = answer.body["details"]["errors"]
    return faults


# --- answers ------------------------------------------------------------------------------------


async def test_a_domain_whose_record_names_a_brand_is_configured(surface: RunningSurfaces) -> None:
    surface.domains.brands[DOMAIN] = address_of(BRAND_ID)
    answer = await post(surface)
    assert (answer.status, answer.body) == (
        200,
        {"success": True, "domain": DOMAIN, "dnsConfigured": True, "brandId": BRAND_ID},
    )


async def test_a_domain_without_a_right_record_is_not(surface: RunningSurfaces) -> None:
    answer = await post(surface)
    assert (answer.status, answer.body) == (
        200,
        {"success": True, "domain": DOMAIN, "dnsConfigured": False, "brandId": None},
    )


@pytest.mark.parametrize(
    ("domain", "normal"),
    [
        ("Shop.EXAMPLE", DOMAIN),
        ("shop.example.", DOMAIN),
        ("sh\u0000op.exam\u007fple", DOMAIN),
        ("www.shop.example", "www.shop.example"),
        ("Bücher.example", "xn--bcher-kva.example"),
        ("shop.co.uk", "shop.co.uk"),
        ("a." * 123 + "example", "a." * 123 + "example"),
    ],
)
async def test_the_normal_form_is_asked_for_and_answered(
    surface: RunningSurfaces, domain: str, normal: str
) -> None:
    answer = await post(surface, {"domain": domain, "more": 1})
    assert (answer.status, answer.body["domain"]) == (200, normal)
    assert surface.domains.requests == [normal]


# --- fields -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        ({}, "domain: is required"),
        ({"domain": None}, "domain: must be a string"),
        ({"domain": 5}, "domain: must be a string"),
        ({"domain": [DOMAIN]}, "domain: must be a string"),
        ({"domain": ""}, "domain: must not be empty"),
        ({"domain": "https://shop.example"}, "domain: must be a name without a scheme"),
        ({"domain": "shop.example:443"}, "domain: must be a name without a port"),
        ({"domain": "shop.example/"}, "domain: must be a name without a path or user name"),
        ({"domain": "ann@shop.example"}, "domain: must be a name without a path or user name"),
        ({"domain": "*.shop.example"}, "domain: must be a name without a wildcard"),
        *(
            ({"domain": value}, "domain: must be a name, not an IP address")
            for value in ("192.0.2.1", "127.1", "[2001:db8::1]", "2001:db8::1", "0x7f000001")
        ),
        ({"domain": "a." * 124 + "example"}, "domain: must have at most 253 characters"),
        *(
            ({"domain": value}, SUFFIX)
            for value in ("com", "co.uk", "CO.UK.", "localhost", "example", "github.io", "рф")
        ),
    ],
    ids=str,
)
async def test_what_is_no_domain_of_its_own_is_refused_with_the_rule(
    surface: RunningSurfaces, payload: object, fault: str
) -> None:
    assert await refused(surface, payload) == [fault]


@pytest.mark.parametrize(
    "value",
    [" shop.example", "shop example", "_ltz.shop.example", "shop..example", "-shop.example"],
)
async def test_a_malformed_name_is_refused(surface: RunningSurfaces, value: str) -> None:
    (fault,) = await refused(surface, {"domain": value})
    assert fault.startswith("domain: must be a valid domain")


@pytest.mark.parametrize(
    ("raw", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"", {}, 400),
        (b"[]", {}, 400),
        (b'{"domain": NaN}', {}, 400),
        (b"{}", {"Content_Type": "text/plain"}, 400),
        (b"{}", {"Content_Type": ""}, 400),
        (b"{}", {"Content_Encoding": "gzip"}, 400),
        (b" " * (EVENT_HANDLER_LIMIT + 1), {}, 413),
    ],
)
async def test_what_is_no_json_or_too_large_is_refused(
    surface: RunningSurfaces, raw: bytes, headers: dict[str, str], status: int
) -> None:
    assert (await post(surface, raw, **headers)).status == status
    assert surface.domains.requests == []


# --- limit --------------------------------------------------------------------------------------


def limited_to(requests_a_minute: int) -> HttpPolicy:
    limit = RateLimit("verify_dns_ip", requests_a_minute, 60)
    return HttpPolicy(per_client=replace(PER_CLIENT, domain_verifications=limit), grace_seconds=2.0)


async def test_an_address_may_ask_three_hundred_times_a_minute() -> None:
    limit = PER_CLIENT.domain_verifications
    assert (limit.max_hits, limit.seconds) == (300, 60)
    async with a_surface(limited_to(3)) as surface:
        for left in (2, 1, 0):
            assert (await post(surface, b"{")).status == 400  # refused before any DNS query
            answer = await post(surface)
            assert (answer.status, answer.window) == (200, (3, left))
        answer = await post(surface)
        assert (answer.status, answer.window) == (429, (3, 0))
        seconds = int(answer.headers["Retry-After"])
        assert 1 <= seconds <= 60
        assert answer.body == {
            "success": False,
            "error": "Rate limit exceeded: an address may ask 3 times a minute; "
            f"try again in {seconds} seconds",
            "details": {"limit": 3, "retryAfterSeconds": seconds},
        }
        assert len(surface.domains.requests) == 3


async def test_the_limit_is_the_clients_own_and_not_its_proxys() -> None:
    policy = HttpPolicy(proxies=Proxies(1, (ip_network("127.0.0.0/8"),)), grace_seconds=2.0)
    async with a_surface(policy) as surface:
        for _ in range(2):
            first = await post(surface, X_Forwarded_For="203.0.113.5")
        other = await post(surface, X_Forwarded_For="203.0.113.6")
    assert (first.window, other.window) == ((300, 298), (300, 299))


# --- the envelope, CORS and the document --------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "status", "error"),
    [
        (DnsUnavailable("asked 192.0.2.53"), 503, "DNS resolver unavailable"),
        (DatabaseUnavailable("at db.internal"), 503, "Database unavailable"),
        (ValueError("unforeseen"), 500, "Internal server error"),
    ],
    ids=["resolver", "database", "unforeseen"],
)
async def test_what_goes_wrong_here_is_told_without_its_cause(
    surface: RunningSurfaces, refusal: Exception, status: int, error: str
) -> None:
    surface.domains.refusal = refusal
    answer = await post(surface)
    assert (answer.status, answer.body) == (status, {"success": False, "error": error})


async def test_another_method_is_told_in_the_same_envelope(surface: RunningSurfaces) -> None:
    async with surface.client.get(surface.url + PATH) as reply:
        assert (reply.status, await reply.json()) == (
            405,
            {"success": False, "error": "Method not allowed"},
        )
        assert reply.headers["Allow"] == "OPTIONS, POST"


async def test_a_brands_page_may_ask_and_a_foreign_one_reads_nothing(
    surface: RunningSurfaces,
) -> None:
    own = await post(surface, Origin="https://www.shop.example")
    assert own.headers["Access-Control-Allow-Origin"] == "https://www.shop.example"
    foreign = await post(surface, Origin="https://evil.example")
    assert "Access-Control-Allow-Origin" not in foreign.headers
    async with surface.client.options(
        surface.url + PATH, headers={"Origin": "https://shop.example"}
    ) as reply:
        assert reply.status == 204
        assert reply.headers["Access-Control-Allow-Origin"] == "https://shop.example"


def test_each_answer_has_examples_that_fit_its_model() -> None:
    (operation,) = OPERATIONS
    assert_examples_fit(operation)
    for body in operation.request_examples.values():
        VerifyDnsBody.from_json(body)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
async def test_calls_made_from_the_document_are_answered_as_documented(
    mode: GenerationMode,
) -> None:
    async with a_surface(limited_to(10_000)) as surface:
        async with surface.client.get(surface.url + "/docs/openapi.json") as reply:
            described = await reply.json()
        described["paths"] = {PATH: described["paths"][PATH]}
        with requests.Session() as http:
            run = Run(schemathesis.openapi.from_dict(described), surface.url, http)
            await asyncio.to_thread(random_cases(mode, 20, CHECKS), run)
        assert {label for label, _ in run.seen} == {f"POST {PATH}"}

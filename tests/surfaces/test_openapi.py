"""The OpenAPI document and its page: complete, true, and self-contained."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
import requests
import schemathesis
from msgspec.structs import replace
from pydantic import BaseModel
from schemathesis import GenerationMode

from ltzd.cache.rate_limits import RateLimit
from ltzd.errors import CooldownActive, DatabaseUnavailable, DomainUnauthorized, IdentityUnavailable
from ltzd.http.app import build_app
from ltzd.http.app import operations as all_operations
from ltzd.http.constraints.models import InvalidateCacheBody
from ltzd.http.errors import (
    PROTOCOL_ERRORS,
    HeadersTooLarge,
    HttpsRequired,
    RequestMalformed,
    UrlTooLong,
)
from ltzd.http.event_handler import models
from ltzd.http.event_handler.errors import EventHandlerError
from ltzd.http.openapi.operations import Operation
from ltzd.http.perk_charges import operations as perk_operations
from ltzd.http.perk_charges.models import RedeemPerkBody
from ltzd.http.relayer.models import relay_request
from ltzd.http.requests.rate_limits import PER_CLIENT
from ltzd.http.services import HttpPolicy
from ltzd.rules.request_signatures import signature
from tests.support.surfaces.http_surface import (
    BRAND_ID,
    COLLECTION,
    PERK,
    SECURITY_KEY,
    TOKEN,
    FakeEvents,
    RunningSurfaces,
    a_surface,
    an_event,
    services_over,
)
from tests.support.surfaces.openapi import assert_examples_fit, documented_path
from tests.surfaces.test_schemathesis import CHECKS, Run, random_cases

OPERATIONS = all_operations(HttpPolicy())
HIGH_LIMITS = HttpPolicy(
    per_client=replace(
        PER_CLIENT,
        relayer=RateLimit("relay_ip", 10_000, 60),
        keyless_invalidations=RateLimit("invalidate_ip", 10_000, 60),
    ),
    grace_seconds=2.0,
)
"""Its limits are higher than the number of requests of any test."""


@pytest_asyncio.fixture
async def surface() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


async def document(surface: RunningSurfaces) -> dict[str, Any]:
    async with surface.client.get(surface.url + "/docs/openapi.json") as answer:
        assert answer.status == 200
        described: dict[str, Any] = await answer.json()
        return described


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*(references(child) for child in value.values()))
    if isinstance(value, list):
        return set().union(*(references(child) for child in value))
    return set()


async def test_every_route_is_described_and_every_description_has_a_route() -> None:
    app = build_app(services_over(FakeEvents()), HttpPolicy())
    routed = {
        (
            method,
            documented_path(route.path),
        )
        for route in app.router.routes
        for method in route.methods
        if method != "HEAD" and not route.path.startswith("docs")
    }
    assert routed == {(operation.method, operation.path) for operation in OPERATIONS}


async def test_the_document_is_openapi_3_1_without_loose_ends(surface: RunningSurfaces) -> None:
    described = await document(surface)
    assert described["openapi"] == "3.1.0"
    assert described["info"]["version"] == "2.0", "spec 9.1"
    defined = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
    assert references(described) == defined
    ids = [
        operation["operationId"]
        for methods in described["paths"].values()
        for operation in methods.values()
    ]
    assert len(ids) == len(set(ids))
    for path, methods in described["paths"].items():
        for operation in methods.values():
            in_path = {
                parameter["name"]
                for parameter in operation["parameters"]
                if parameter["in"] == "path"
            }
            assert in_path == set(re.findall(r"{(\w+)}", path))


async def test_the_document_names_what_every_endpoint_may_refuse(surface: RunningSurfaces) -> None:
    described = await document(surface)
    kinds = (RequestMalformed, HttpsRequired, UrlTooLong, HeadersTooLarge)
    refusals = {kind.status for kind in kinds} | PROTOCOL_ERRORS.keys()
    listed = {status for operation in OPERATIONS for status in operation.responses}
    for status in {400, 403, *(refusals - listed)}:
        assert f"{status} " in described["info"]["description"], status


async def test_the_documented_request_has_the_rules_of_the_specification(
    surface: RunningSurfaces,
) -> None:
    event = (await document(surface))["components"]["schemas"]["ManualEventBody"]
    assert event["required"] == ["brandId", "eventType", "userEmail"]
    assert event["properties"]["brandId"]["pattern"] == "^0x[0-9a-f]{40}$"
    assert event["properties"]["eventType"]["pattern"] == "^[A-Za-z0-9_]{1,50}$"
    assert event["properties"]["userEmail"]["maxLength"] == 254


async def test_each_status_that_is_seen_is_documented_with_its_shape(
    surface: RunningSurfaces,
) -> None:
    responses = (await document(surface))["paths"]["/service-api/manual-event"]["post"]["responses"]
    shapes: dict[str, type[BaseModel]] = {
        "ManualEventResponse": models.ManualEventResponse,
        "EventHandlerError": EventHandlerError,
    }
    refusals = [
        None,
        DomainUnauthorized("no", domain="x"),
        CooldownActive("no", cooldownSeconds=1),
        IdentityUnavailable("gone"),
        DatabaseUnavailable("gone"),
    ]
    seen = set()
    for refusal in refusals:
        surface.events.refusal = refusal
        for raw in (an_event(), an_event(brandId=1), an_event(metadata={"x": "x" * 20_000})):
            async with surface.client.post(
                surface.url + "/service-api/manual-event", json=raw
            ) as answer:
                seen.add(answer.status)
                schema = responses[str(answer.status)]["content"]["application/json"]["schema"]
                shapes[schema["$ref"].rpartition("/")[2]].model_validate(await answer.json())
    assert seen == {200, 400, 403, 413, 429, 500, 503}


async def test_the_page_shows_every_path_and_loads_nothing(surface: RunningSurfaces) -> None:
    async with surface.client.get(surface.url + "/docs") as answer:
        page = await answer.text()
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    for operation in OPERATIONS:
        assert operation.path in page
    assert "claim limit reached" in page
    assert "X-RateLimit-Remaining" in page
    assert "CLAIM_LIMIT_REACHED" in page
    assert "Bearer: An access or identity token" in page
    assert "in the header, optional: Bearer: A brand&#x27;s API key" in page
    assert "in the query, optional: integer minimum 1 maximum 100" in page
    assert "integer minimum 50 maximum 99999999" in page, "an amount in cents"
    without_examples = re.sub(r"<pre>[^<]*</pre>", "", page)
    assert not re.search(r"<script|<link|src=|https?://|@import|url\(", without_examples)
    assert re.findall(r'href="([^#"]+)"', page) == ["/docs/openapi.json"]


RELAY_OPERATIONS = [operation for operation in OPERATIONS if operation.path.startswith("/relay")]
POST_RELAY, GET_RELAY = RELAY_OPERATIONS
PERK_OPERATIONS = [*perk_operations.OPERATIONS]
CONSTRAINT_OPERATIONS = [operation for operation in OPERATIONS if "invalidate" in operation.path]
RELAY_WINDOW = {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}


@pytest.mark.parametrize(
    "operation",
    [*RELAY_OPERATIONS, *PERK_OPERATIONS, *CONSTRAINT_OPERATIONS],
    ids=lambda operation: f"{operation.method} {operation.path}",
)
def test_each_answer_has_examples_that_fit_its_model(operation: Operation) -> None:
    assert_examples_fit(operation)


def test_the_examples_of_calls_are_calls() -> None:
    assert len(POST_RELAY.request_examples) == 2
    for body in POST_RELAY.request_examples.values():
        relay_request(dict(body), [])


def test_the_examples_of_redemptions_and_invalidations_are_good_requests() -> None:
    redeem, *_ = PERK_OPERATIONS
    for body in redeem.request_examples.values():
        RedeemPerkBody.from_json(body)
    for operation in CONSTRAINT_OPERATIONS:
        for body in operation.request_examples.values():
            InvalidateCacheBody.from_json(body)


def codes_in(operations: list[Operation]) -> set[tuple[int, object]]:
    return {
        (status, body["code"])
        for operation in operations
        for status, response in operation.responses.items()
        for body in response.examples.values()
        if status >= 400
    }


def test_every_code_of_perk_charges_has_an_example() -> None:
    read = {
        (400, "MISSING_FIELDS"),
        (400, "INVALID_FIELDS"),
        (401, "UNAUTHORIZED"),
        (403, "VALIDATION_FAILED"),
        (404, "COLLECTION_NOT_FOUND"),
        (413, "PAYLOAD_TOO_LARGE"),
        (429, "RATE_LIMIT_EXCEEDED"),
        (429, "TOO_MANY_REQUESTS"),
        (500, "INTERNAL_ERROR"),
        (503, "DATABASE_UNAVAILABLE"),
        (503, "OVERLOADED"),
    }
    redeem, status, holders = PERK_OPERATIONS
    assert codes_in([holders]) == read
    assert codes_in([status]) == read | {(404, "TOKEN_NOT_FOUND")}
    assert codes_in([redeem]) == read | {
        (400, "INVALID_BODY"),
        (404, "TOKEN_NOT_FOUND"),
        (409, "HOLDER_CHANGED"),
        (409, "IDEMPOTENCY_KEY_REUSED"),
        (409, "NO_CHARGES_REMAINING"),
        (429, "BUDGET_EXHAUSTED"),
        (500, "TRANSACTION_FAILED"),
        (503, "NODE_UNAVAILABLE"),
        (503, "OUTCOME_UNKNOWN"),
        (503, "OVERLOADED"),
        (503, "RELAY_PENDING"),
        (503, "UNAVAILABLE"),
    }


def test_every_code_of_the_relayer_has_an_example() -> None:
    assert codes_in(RELAY_OPERATIONS) == {
        (400, "MISSING_FIELDS"),
        (400, "INVALID_FIELDS"),
        (400, "INVALID_BODY"),
        (401, "UNAUTHORIZED"),
        (403, "VALIDATION_FAILED"),
        (403, "CONTRACT_NOT_WHITELISTED"),
        (404, "NOT_FOUND"),
        (409, "CLAIM_LIMIT_REACHED"),
        (409, "IDEMPOTENCY_KEY_REUSED"),
        (413, "PAYLOAD_TOO_LARGE"),
        (429, "RATE_LIMIT_EXCEEDED"),
        (429, "TOO_MANY_REQUESTS"),
        (500, "TRANSACTION_FAILED"),
        (500, "IDENTITY_UNAVAILABLE"),
        (500, "INTERNAL_ERROR"),
        (503, "DATABASE_UNAVAILABLE"),
        (503, "NODE_UNAVAILABLE"),
        (503, "OUTCOME_UNKNOWN"),
        (503, "OVERLOADED"),
        (503, "RELAY_PENDING"),
        (503, "UNAVAILABLE"),
    }


async def test_the_relayer_documents_its_token_headers_and_examples(
    surface: RunningSurfaces,
) -> None:
    described = await document(surface)
    assert described["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for operation, method in ((POST_RELAY, "post"), (GET_RELAY, "get")):
        described_operation = described["paths"][operation.path][method]
        assert described_operation["security"] == [{"bearer": []}]
        for status, answer in described_operation["responses"].items():
            of_status = {"429": {"Retry-After"}, "401": {"WWW-Authenticate"}}
            of_status["503"] = {"Retry-After"}
            of_status["500"] = {"Retry-After"}  # the identity provider is unavailable
            if method == "post":  # the total gas budget, which is renewed at midnight
                of_status["403"] = {"Retry-After"}
            more = of_status.get(status, set())
            assert set(answer["headers"]) == RELAY_WINDOW | more
            examples = answer["content"]["application/json"]["examples"]
            values = {name: example["value"] for name, example in examples.items()}
            assert values == operation.responses[int(status)].examples
    assert "security" not in described["paths"]["/service-api/manual-event"]["post"]


async def test_perk_charges_document_the_four_headers_of_a_signature(
    surface: RunningSurfaces,
) -> None:
    described = await document(surface)
    for operation in PERK_OPERATIONS:
        described_operation = described["paths"][operation.path][operation.method.lower()]
        named = {
            parameter["name"]
            for parameter in described_operation["parameters"]
            if parameter["in"] == "header"
        }
        assert named == {"X-LTZ-Brand-Id", "X-LTZ-Timestamp", "X-LTZ-Nonce", "X-LTZ-Signature"}
        assert all(
            parameter["required"]
            for parameter in described_operation["parameters"]
            if parameter["in"] == "header"
        )
        responses = described_operation["responses"]
        assert set(responses["401"]["headers"]) == {"WWW-Authenticate", *RELAY_WINDOW}
        assert set(responses["429"]["headers"]) == {"Retry-After", *RELAY_WINDOW}
        headers = set(responses["200"].get("headers", ()))
        assert headers <= {"Age"}, "a request that is signed rightly has no window"


async def test_operations_keep_their_ids(surface: RunningSurfaces) -> None:
    paths = (await document(surface))["paths"]
    assert paths["/service-api/manual-event"]["post"]["operationId"] == "post-manual-event"
    assert paths["/relay"]["post"]["operationId"] == "post-relay"
    assert paths["/relay/{transactionHash}"]["get"]["operationId"] == "get-relay-transactionHash"


async def test_answers_of_the_reads_fit_their_models(surface: RunningSurfaces) -> None:
    for path, model in (
        (f"/service-api/event-config?brandId={BRAND_ID}", models.EventConfigResponse),
        ("/service-api/health", models.HealthResponse),
        ("/service-api/diagnostic", models.DiagnosticResponse),
        ("/service-api/debug", models.DebugResponse),
    ):
        async with surface.client.get(surface.url + path) as answer:
            model.model_validate(await answer.json())


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
async def test_calls_made_from_the_document_are_answered_as_documented(
    mode: GenerationMode,
) -> None:
    async with a_surface(HIGH_LIMITS) as surface:
        with requests.Session() as http:
            http.headers["Authorization"] = f"Bearer {TOKEN}"
            await made_calls(surface, RELAY_OPERATIONS, http, mode)


async def made_calls(
    surface: RunningSurfaces,
    operations: list[Operation],
    http: requests.Session,
    mode: GenerationMode,
) -> Run:
    described = await document(surface)
    described["paths"] = {
        operation.path: described["paths"][operation.path] for operation in operations
    }
    run = Run(schemathesis.openapi.from_dict(described), surface.url, http)
    await asyncio.to_thread(random_cases(mode, 20, CHECKS), run)
    assert {label for label, _ in run.seen} == {
        f"{operation.method} {operation.path}" for operation in operations
    }
    return run


def with_a_signature(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Sign the generated request as the brand's server would."""
    body = request.body.encode() if isinstance(request.body, str) else request.body or b""
    assert isinstance(body, bytes)
    timestamp, nonce, method = str(int(time.time())), uuid4().hex, request.method or ""
    made = signature(SECURITY_KEY, timestamp, nonce, method, request.path_url.encode(), body)
    headers = (BRAND_ID, timestamp, nonce, made)
    names = ("X-LTZ-Brand-Id", "X-LTZ-Timestamp", "X-LTZ-Nonce", "X-LTZ-Signature")
    request.headers.update(zip(names, headers, strict=True))
    return request


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
async def test_signed_calls_made_from_the_document_are_answered_as_documented(
    surface: RunningSurfaces, mode: GenerationMode
) -> None:
    with requests.Session() as http:
        http.auth = with_a_signature
        run = await made_calls(surface, PERK_OPERATIONS, http, mode)
    statuses = {status for _, status in run.seen}
    assert statuses & {400, 404}, "what is made up names no collection of the brand's"
    assert 401 not in statuses


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
async def test_invalidations_made_from_the_document_are_answered_as_documented(
    mode: GenerationMode,
) -> None:
    async with a_surface(HIGH_LIMITS) as surface:
        with requests.Session() as http:
            await made_calls(surface, CONSTRAINT_OPERATIONS, http, mode)


async def test_answers_about_perks_fit_what_is_documented(surface: RunningSurfaces) -> None:
    paths = (await document(surface))["paths"]
    token: dict[str, Any] = {"collectionId": COLLECTION, "tokenId": str(PERK)}
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/redeem-perk", {"json": token}),
        ("GET", "/check-perk-status", {"params": token}),
        ("GET", "/list-perk-holders", {"params": {"collectionId": COLLECTION, "limit": 1}}),
    ]
    with requests.Session() as http:
        http.auth = with_a_signature
        for method, path, arguments in calls:
            answer = await asyncio.to_thread(
                http.request, method, surface.url + path, timeout=20, **arguments
            )
            assert answer.status_code == 200, answer.text
            shape = paths[path][method.lower()]["responses"]["200"]["content"]
            example = next(iter(shape["application/json"]["examples"].values()))["value"]
            assert set(answer.json()) == set(example)

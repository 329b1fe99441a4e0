"""The OpenAPI document and its page: complete, true, and self-contained."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from pydantic import BaseModel

from ltzd.errors import CooldownActive, DatabaseUnavailable, DomainUnauthorized, IdentityUnavailable
from ltzd.http import models
from ltzd.http.app import build_app
from ltzd.http.event_handler import OPERATIONS
from ltzd.http.services import Health, HttpPolicy, Services
from tests.support.http_surface import BRAND_ID, EventBook, Surface, a_surface, an_event


@pytest_asyncio.fixture
async def surface() -> AsyncIterator[Surface]:
    async with a_surface() as surface:
        yield surface


async def document(surface: Surface) -> dict[str, Any]:
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
    async def health() -> Health:
        return Health(True, True, True)

    app = build_app(Services(EventBook(), health, lambda _host: False), HttpPolicy())
    routed = {
        (method, "/" + re.sub(r"<event_id:str>", "{eventId}", route.path))
        for route in app.router.routes
        for method in route.methods
        if method != "HEAD" and not route.path.startswith("docs")
    }
    assert routed == {(operation.method, operation.path) for operation in OPERATIONS}


async def test_the_document_is_openapi_3_1_without_loose_ends(surface: Surface) -> None:
    described = await document(surface)
    assert described["openapi"] == "3.1.0"
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
            in_path = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert in_path == set(re.findall(r"{(\w+)}", path))


async def test_the_documented_request_has_the_rules_of_the_specification(surface: Surface) -> None:
    event = (await document(surface))["components"]["schemas"]["ManualEvent"]
    assert event["required"] == ["brandId", "eventType", "userEmail"]
    assert event["properties"]["brandId"]["pattern"] == "^0x[0-9a-f]{40}$"
    assert event["properties"]["eventType"]["pattern"] == "^[A-Za-z0-9_]{1,50}$"
    assert event["properties"]["userEmail"]["maxLength"] == 254


async def test_each_status_that_is_seen_is_documented_with_its_shape(surface: Surface) -> None:
    responses = (await document(surface))["paths"]["/service-api/manual-event"]["post"]["responses"]
    shapes: dict[str, type[BaseModel]] = {
        "RecordedAnswer": models.RecordedAnswer,
        "Refusal": models.Refusal,
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
        surface.book.refusal = refusal
        for raw in (an_event(), an_event(brandId=1), an_event(metadata={"x": "x" * 20_000})):
            async with surface.client.post(
                surface.url + "/service-api/manual-event", json=raw
            ) as answer:
                seen.add(answer.status)
                schema = responses[str(answer.status)]["content"]["application/json"]["schema"]
                shapes[schema["$ref"].rpartition("/")[2]].model_validate(await answer.json())
    assert seen == {200, 400, 403, 413, 429, 500, 503}


async def test_the_page_shows_every_path_and_loads_nothing(surface: Surface) -> None:
    async with surface.client.get(surface.url + "/docs") as answer:
        page = await answer.text()
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    for operation in OPERATIONS:
        assert operation.path in page
    assert not re.search(r"<script|<link|src=|https?://|@import|url\(", page)
    assert re.findall(r'href="([^#"]+)"', page) == ["/docs/openapi.json"]


async def test_answers_of_the_reads_fit_their_models(surface: Surface) -> None:
    for path, model in (
        (f"/service-api/event-config?brandId={BRAND_ID}", models.ConfigAnswer),
        ("/service-api/health", models.HealthAnswer),
        ("/service-api/diagnostic", models.DiagnosticAnswer),
        ("/service-api/debug", models.DebugAnswer),
    ):
        async with surface.client.get(surface.url + path) as answer:
            model.model_validate(await answer.json())

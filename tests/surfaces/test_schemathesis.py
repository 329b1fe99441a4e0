"""The event surface against its own OpenAPI document.

schemathesis makes valid and invalid requests from the document and checks each response: no 5xx, no
undocumented status, content types and shapes as described. Some requests are steered to existing
brands, since invented ones hardly ever pass the check of the brand. The requests are the same in
every run.

schemathesis blocks, so it runs in a thread beside the event loop that serves.
"""

import asyncio
import copy
import gzip
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import CheckContext, CheckFunction, not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from ltzd.http.openapi.operations import ERROR_HEADERS
from tests.support.surfaces.event_surface import PREFIX, EventSurface, LiveBrand, unlimited_rule


def headers_are_documented(_context: CheckContext, answer: Response, case: Case[Any]) -> None:
    """The headers that steer a caller: limits, waiting times, the authentication scheme."""
    described = case.operation.definition.raw["responses"].get(str(answer.status_code), {})
    sent = {name for name in ERROR_HEADERS if name.lower() in answer.headers}
    assert sent <= set(described.get("headers", ())), (case.operation.label, answer.status_code)


CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    headers_are_documented,
]
CONFIGURED = schemathesis.Config.from_dict(
    {
        "seed": 1,
        "checks": {
            # A malformed request may also be too large, which is checked first.
            "negative_data_rejection": {
                "expected-statuses": ["400", "401", "403", "404", "405", "409", "413", "415", "429"]
            }
        },
    }
)
EXAMPLES = 40
"""Per operation and mode."""

Schema = Any
Operation = APIOperation[Any, Any, Any, Any]
Fuzz = Callable[["Run"], None]


@dataclass
class Run:
    """One document, the server that is checked against it, and the responses so far."""

    schema: Schema
    url: str
    http: requests.Session
    seen: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def operations(self) -> list[Operation]:
        return [operation.ok() for operation in self.schema.get_all_operations()]

    def check(self, case: Case[Any], checks: Sequence[CheckFunction] = CHECKS) -> None:
        answer = case.call(base_url=self.url, session=self.http, timeout=20)
        self.seen[case.operation.label, answer.status_code] += 1
        case.validate_response(answer, checks=list(checks))


async def document(surface: EventSurface) -> dict[str, Any]:
    answer = await surface.ask("GET", "/docs/openapi.json")
    described: dict[str, Any] = answer.body
    described["paths"] = {
        path: path_item for path, path_item in described["paths"].items() if path.startswith(PREFIX)
    }
    return described


async def fuzzed(surface: EventSurface, described: dict[str, Any], fuzz: Fuzz) -> Run:
    """The run, after `fuzz` has found no fault."""
    with requests.Session() as http:
        schema = schemathesis.openapi.from_dict(described, config=CONFIGURED)
        run = Run(schema, surface.url, http)
        await asyncio.to_thread(fuzz, run)
    return run


def takes_anything(operation: Operation) -> bool:
    """True if the operation has a body or parameters."""
    return bool(operation.body or operation.query or operation.path_parameters)


def random_cases(mode: GenerationMode, examples: int, checks: Sequence[CheckFunction]) -> Fuzz:
    def fuzz(run: Run) -> None:
        for operation in run.operations:
            if mode is GenerationMode.NEGATIVE and not takes_anything(operation):
                continue

            @settings(
                max_examples=examples,
                derandomize=True,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                # No shrinking: the server's state has changed since the first call.
                phases=[Phase.explicit, Phase.generate],
            )
            @given(case=operation.as_strategy(mode))
            def ask(case: Case[Any]) -> None:
                run.check(case, checks)

            ask()

    return fuzz


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
async def test_whatever_is_made_from_the_document_is_answered_as_documented(
    event_surface: EventSurface, mode: GenerationMode
) -> None:
    checks = [*CHECKS, negative_data_rejection] if mode is GenerationMode.NEGATIVE else CHECKS
    run = await fuzzed(
        event_surface, await document(event_surface), random_cases(mode, EXAMPLES, checks)
    )
    labels = {label for label, _ in run.seen}
    assert labels == {
        operation.label
        for operation in run.operations
        if mode is GenerationMode.POSITIVE or takes_anything(operation)
    }


async def test_every_edge_of_the_document_is_answered_as_documented(
    event_surface: EventSurface,
) -> None:
    """Boundaries of lengths and types, missing and repeated parameters, undocumented methods."""

    def fuzz(run: Run) -> None:
        for operation in run.operations:
            for case in run.schema.iter_coverage_cases(
                operation,
                generation_modes=list(GenerationMode),
                generation_config=run.schema.config.generation_for(operation=operation),
            ):
                is_foreign = case.method != operation.method.upper()
                run.check(case, [not_a_server_error, unsupported_method] if is_foreign else CHECKS)

    run = await fuzzed(event_surface, await document(event_surface), fuzz)
    assert len(run.seen) > 10


def steered(described: dict[str, Any], *brands: LiveBrand) -> dict[str, Any]:
    """The document with the values of these brands in place of arbitrary ones."""
    described = copy.deepcopy(described)
    schemas = described["components"]["schemas"]
    (brand, *_) = brands
    fields = schemas["ManualEventBody"]["properties"]
    fields["brandId"] = one_of(*(each.id for each in brands), "0x" + "fe" * 20)
    fields["eventType"] = one_of(*(rule.type for rule in brand.brand.events), "not_there")
    fields["userEmail"] = one_of(*(f"u{number}@mail.example" for number in range(4)))
    fields["domain"] = one_of(brand.domain, f"www.{brand.domain}", "evil.example")
    schemas["ManualEventBody"]["required"] = ["brandId", "eventType", "userEmail", "domain"]
    schemas["EventMetadata"]["properties"] |= {
        "channel_id": one_of("lounge", "other"),
        "source": {"enum": ["voice_claim", "web", 5, None]},
        "amount": {"anyOf": [{"type": "number"}, {"enum": ["10.50", "x", 0, 10**400]}]},
    }
    for path in described["paths"].values():
        for operation in path.values():
            for parameter in operation["parameters"]:
                if parameter["name"] == "brandId":
                    parameter["schema"] = one_of(*(each.id for each in brands))
    return described


def one_of(*texts: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(texts)}


async def test_requests_that_get_far_are_answered_as_documented_too(
    event_surface: EventSurface,
) -> None:
    rules = (
        unlimited_rule("custom_free"),
        unlimited_rule("custom_chat", channels=["lounge"]),
        unlimited_rule("custom_cool", cooldown_hours=1),
        unlimited_rule("custom_once", max_claims_per_user=1),
        unlimited_rule("custom_few", max_total_claims=2),
        {"type": "purchase", "reward_per_dollar": 0.5, "max_claims_per_user": -1},
    )
    domains = ("steered.example",)
    brand = await event_surface.brand(*rules, domains=domains, max_reward_per_event=1_000)
    other = await event_surface.brand(*rules, domains=domains, duplicate_window_seconds=0)
    described = steered(await document(event_surface), brand, other)

    run = await fuzzed(event_surface, described, random_cases(GenerationMode.POSITIVE, 150, CHECKS))

    events = {status for label, status in run.seen if label.endswith("/manual-event")}
    assert events >= {200, 400, 403, 409, 429}, run.seen
    assert run.seen["GET " + PREFIX + "/event-config", 200]


async def test_bodies_that_no_document_describes_get_documented_answers(
    event_surface: EventSurface,
) -> None:
    def fuzz(run: Run) -> None:
        for operation in run.operations:
            if operation.method.upper() != "POST":
                continue
            for raw, headers in (
                (b"", {}),
                (b"{", {}),
                (b"x" * 10_241, {}),
                (b"{}", {"Content-Type": "text/plain"}),
                (gzip.compress(b"{}"), {"Content-Encoding": "gzip"}),
                (b"\xff\xfe{\x00}\x00", {}),
            ):
                answer = run.http.post(
                    run.url + operation.full_path,
                    data=raw,
                    headers={"Content-Type": "application/json"} | headers,
                    timeout=20,
                )
                run.seen[operation.label, answer.status_code] += 1
                case = operation.Case(body={})
                case.validate_response(answer, checks=CHECKS)

    run = await fuzzed(event_surface, await document(event_surface), fuzz)
    # All tests here share the limits of one address.
    assert {status for _, status in run.seen} - {429} == {400, 413}

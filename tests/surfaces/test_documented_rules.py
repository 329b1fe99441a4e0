"""The rules that the OpenAPI document tells, against those that the code has.

No server: the document's schemas judge the bodies and examples, and so do the models that judge
requests.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any
from urllib.parse import urlencode

import jsonschema_rs
import pytest
from sanic.exceptions import RequestCancelled, ServiceUnavailable

from ltzd.errors import (
    LtzdError,
    NodeUnavailable,
    OutcomeUnknown,
    Refused,
    SignatureRefused,
    Unauthorized,
    Unavailable,
)
from ltzd.http.app import operations
from ltzd.http.errors import http_error_of
from ltzd.http.event_handler.models import EventConfigQuery
from ltzd.http.openapi.document import document
from ltzd.http.openapi.error_causes import default_example
from ltzd.http.openapi.operations import SIGNATURE_HEADERS, Operation
from ltzd.http.perk_charges.models import CheckPerkStatusQuery, ListPerkHoldersQuery
from ltzd.http.pregeneration.models import PregenerateUserBody
from ltzd.http.services import HttpPolicy
from ltzd.http.site_plugin.errors import InvalidParams
from ltzd.http.site_plugin.models import LeaderboardQuery
from tests.support.surfaces.openapi import ENCODER, assert_examples_fit

OPERATIONS = operations(HttpPolicy())
DOCUMENT = document(OPERATIONS)
SCHEMAS = DOCUMENT["components"]["schemas"]
KEYWORDS = frozenset(
    (
        *("$ref", "additionalProperties", "anyOf", "const", "default", "description", "enum"),
        *("examples", "format", "items", "maxItems", "maxLength", "maximum", "minItems"),
        *("minLength", "minimum", "pattern", "properties", "required", "title", "type"),
    )
)
"""The keywords of JSON Schema that the document uses. Readers ignore every other one."""

ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
UUID_TEXT = "6f1c2a3e-0b1d-4d52-9a55-0c8f4c3f0b1a"
FULL_BODIES: Mapping[str, Mapping[str, object]] = {
    "ManualEventBody": {
        "sourceUrl": "https://shop.example/welcome",
        "userIdentifier": ADDRESS,
        "metadata": {"channel_id": "general", "skip_cooldown": False},
    },
    "CreateCheckoutBody": {"currency": "usd"},
    "RelayBody": {
        "value": "0",
        "gasLimit": 100_000,
        "metadata": {
            "action": "claim",
            "perkId": "1",
            "idempotencyKey": "6c1d9d70",
            "permit": {
                "owner": ADDRESS,
                "spender": ADDRESS,
                "value": "1",
                "deadline": 1,
                "v": 27,
                "r": "0x1",
                "s": "0x1",
            },
        },
    },
    "RedeemPerkBody": {
        "amount": 1,
        "userAddress": ADDRESS,
        "reference": "receipt 7",
        "idempotencyKey": "6c1d9d70",
    },
    "RedeemBody": {"maxCost": 25},
    "CreateSiteLinkBody": {"dailyAllowance": 500},
}
"""The optional fields that the first example of a body lacks."""

TEXTS = (
    *("", " ", "a", "0", "-1", "1.0", "usd", "eur", "discord", "a b", "é", "٣", "a\u00a0b"),
    *(letter * length for letter in "a9" for length in (7, 8, 50, 51, 64, 65, 78, 79, 128, 129)),
    *("a" * length for length in (200, 201, 253, 254, 255, 256, 2_048, 2_049, 40_000)),
    *("0x", "0x" + "ab" * 20, "0x" + "aB" * 20, "0X" + "ab" * 20, "0x" + "f" * 64, "0x" + "f" * 65),
    *("a@shop.example", "a@b", "a b@shop.example", "shop.example", "shop.example:80", "1.2.3.4"),
    *("https://shop.example/a", "HTTP://shop.example", "ftp://shop.example", "//shop.example"),
    *("https://shop.example/{CHECKOUT_SESSION_ID}", "https://shop.example/a b", "https://"),
    *(UUID_TEXT, UUID_TEXT.replace("-", ""), "cs_a", "cs_" + "a" * 251, "0x" + "ab" * 16_385),
)
NUMBERS = (
    *(-1, 0, 1, 2, 27, 29, 49, 50, 65_535, 65_536, 1_000_000, 1_000_001, 99_999_999, 100_000_000),
    *(2**31, 2**53, 2**63, 2**64, 2**256 - 1, 2**256, 1.0, 50.0, 1.5, -1.0, 1e300),
)
VALUES: tuple[object, ...] = (*TEXTS, *NUMBERS, True, None, [], {}, [1])

RULES_OF_ALL_REQUESTS = (
    "must have the right checksum (EIP-55), or letters of one case",
    "must be an integer",  # 1e300: JSON Schema knows no difference between 1e300 and 10^300
)
"""The rules that the description of the document tells, for the fields of every request."""


def label(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


def schemas_in(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema and those in it. The names of properties are no keywords."""
    yield schema
    children = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    children += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for child in children:
        if isinstance(child, dict):
            yield from schemas_in(child)


def validator(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    whole = {**schema, "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


def as_sent(body: object) -> Any:
    return json.loads(ENCODER.encode(body))


def test_schemas_have_keywords_of_json_schema_alone() -> None:
    parameters = [
        parameter["schema"]
        for path_item in DOCUMENT["paths"].values()
        for operation in path_item.values()
        for parameter in operation["parameters"]
    ]
    for schema in [*SCHEMAS.values(), *parameters]:
        for part in schemas_in(schema):
            assert set(part) <= KEYWORDS, part


@pytest.mark.parametrize("operation", OPERATIONS, ids=label)
def test_examples_are_valid_by_their_schemas(operation: Operation) -> None:
    assert_examples_fit(operation)
    assert operation.request is None or operation.request_examples
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]
    holders = [*described["responses"].values(), described.get("requestBody", {})]
    for holder in holders:
        for content in holder.get("content", {}).values():
            check = validator(content["schema"])
            for name, example in content.get("examples", {}).items():
                faults = [fault.message for fault in check.iter_errors(as_sent(example["value"]))]
                assert not faults, name


@pytest.mark.parametrize("operation", OPERATIONS, ids=label)
def test_no_example_of_an_error_hides_another(operation: Operation) -> None:
    for name, error in operation.error_examples.items():
        reply = operation.errors.reply(http_error_of(error), operation.path)
        assert operation.responses[reply.status].examples[name] == reply.body


@pytest.mark.parametrize("operation", OPERATIONS, ids=label)
def test_every_error_that_ends_by_itself_says_when_to_repeat_the_request(
    operation: Operation,
) -> None:
    away = [kind for kind in operation.raised if issubclass(kind, Unavailable)]
    for kind in [*away, Unavailable, OutcomeUnknown, NodeUnavailable]:
        reply = operation.errors.reply(http_error_of(kind("")), operation.path)
        assert int(reply.headers["Retry-After"]) >= 1, kind
    for error in (RequestCancelled(), ServiceUnavailable("The handler took too long")):
        reply = operation.errors.reply(http_error_of(error), operation.path)
        assert (reply.status, "Retry-After" in reply.headers) != (503, False)
    for status, response in operation.responses.items():
        documented = {header.name for header in response.headers}
        assert status not in {429, 503} or "Retry-After" in documented


def faulty_fields(error: LtzdError) -> Iterator[str]:
    if isinstance(error, InvalidParams):
        yield from error.params
    faults = error.details.get("missing", error.details.get("errors"))
    for fault in faults if isinstance(faults, list) else ():
        yield re.split("[:.]", fault)[0]


@pytest.mark.parametrize("operation", OPERATIONS, ids=label)
def test_the_faults_of_examples_are_of_fields_that_the_request_has(operation: Operation) -> None:
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]
    fields = {parameter["name"] for parameter in described["parameters"]}
    if operation.request is not None:
        fields |= SCHEMAS[operation.request.__name__]["properties"].keys()
    kinds = {type(error) for error in operation.error_examples.values()}
    defaults = [
        default_example(kind, operation.body_limit)
        for kind in operation.raised
        if kind not in kinds
    ]
    for error in (*operation.error_examples.values(), *defaults):
        assert set(faulty_fields(error)) <= fields, error


@pytest.mark.parametrize("operation", OPERATIONS, ids=label)
def test_credentials_are_told_where_programs_look_for_them(operation: Operation) -> None:
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]
    headers = {
        parameter["name"] for parameter in described["parameters"] if parameter["in"] == "header"
    }
    # OpenAPI: a parameter with one of these names shall be ignored.
    assert not headers & {"Accept", "Authorization", "Content-Type"}
    if Unauthorized in operation.raised:
        assert described["security"]
    if SignatureRefused in operation.raised:
        assert headers >= SIGNATURE_HEADERS.keys()


def fields_of(body: Mapping[str, Any], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in body.items():
        yield (*place, name)
        if isinstance(value, dict) and name != "data":
            yield from fields_of(value, (*place, name))


def with_value(body: Mapping[str, Any], field: tuple[str, ...], value: object) -> dict[str, Any]:
    changed: dict[str, Any] = deepcopy(dict(body))
    holder = changed
    for name in field[:-1]:
        holder = holder[name]
    holder[field[-1]] = value
    return changed


def schemas_of_field(name: str, field: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    """The property and its choices, without those of the object that it may be."""
    schema = SCHEMAS[name]
    for step in field:
        schema = schema.get("properties", {}).get(step, {})
        choices = [schema, *schema.get("anyOf", ())]
        references = [choice["$ref"] for choice in choices if "$ref" in choice]
        yield from choices if step == field[-1] else ()
        if references:
            schema = SCHEMAS[references[0].rpartition("/")[2]]


BODIES = {operation.request: operation for operation in OPERATIONS if operation.request is not None}


def reason_against(model: Any, body: Mapping[str, Any]) -> str | None:
    """Why the body is refused; None if it is accepted."""
    try:
        parsed = model.from_json(body)
        if isinstance(parsed, PregenerateUserBody):
            parsed.to_request(is_signed=False)
    except InvalidParams as error:
        return "; ".join(error.params.values())
    except Refused as error:
        faults = error.details.get("errors")
        return "; ".join(faults) if isinstance(faults, list) else error.message
    return None


def is_told(reason: str, described: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a description, of the field or of all requests, may tell the rule.

    A schema can tell every bound, so a description is not enough for one.
    """
    if re.search("must (be|hold) at (least|most)", reason):
        return False
    return reason.endswith(RULES_OF_ALL_REQUESTS) or any(
        "description" in schema for schema in described
    )


@pytest.mark.parametrize("operation", BODIES.values(), ids=label)
def test_a_field_is_refused_where_its_schema_or_description_says_so(operation: Operation) -> None:
    model: Any = operation.request
    (first, *_) = operation.request_examples.values()
    body = as_sent({**first, **FULL_BODIES.get(model.__name__, {})})
    check = validator({"$ref": f"#/components/schemas/{model.__name__}"})
    assert check.is_valid(body)
    assert reason_against(model, body) is None
    for field in fields_of(body):
        described = list(schemas_of_field(model.__name__, field))
        for value in VALUES:
            changed = with_value(body, field, value)
            reason = reason_against(model, changed)
            if not check.is_valid(changed):
                assert reason is not None, (field, value, "is accepted")
            elif reason is not None:
                assert is_told(reason, described), (field, value, reason)


QUERIES: Mapping[str, Callable[[Mapping[str, str]], object]] = {
    "/service-api/event-config": lambda query: EventConfigQuery.from_query(list(query.values())),
    "/check-perk-status": lambda query: CheckPerkStatusQuery.from_text(urlencode(query)),
    "/list-perk-holders": lambda query: ListPerkHoldersQuery.from_text(urlencode(query)),
    "/wp-json/loyalty/v1/leaderboard": lambda query: LeaderboardQuery.from_query(
        {name: [text] for name, text in query.items()}
    ),
}
GOOD_QUERY = {"brandId": "0x" + "ab" * 20, "collectionId": "7", "tokenId": "1"}


def is_valid_text(schema: Mapping[str, Any], text: str) -> bool:
    is_number = text.isascii() and text.isdecimal() and len(text) < 80
    value = int(text) if schema["type"] == "integer" and is_number else text
    return bool(validator(schema).is_valid(value))


@pytest.mark.parametrize("path", QUERIES)
def test_a_parameter_is_refused_where_its_schema_or_description_says_so(path: str) -> None:
    parameters = [
        parameter
        for parameter in DOCUMENT["paths"][path]["get"]["parameters"]
        if parameter["in"] == "query"
    ]
    good = {each["name"]: GOOD_QUERY[each["name"]] for each in parameters if each["required"]}
    QUERIES[path](good)
    for parameter in parameters:
        for text in filter(None, TEXTS):  # a parameter without a value counts as absent
            query = good | {parameter["name"]: text}
            try:
                QUERIES[path](query)
                reason = None
            except Refused as error:
                reason = error.message
            if not is_valid_text(parameter["schema"], text):
                assert reason is not None, (parameter["name"], text, "is accepted")
            elif reason is not None:
                assert is_told(reason, [parameter]), (parameter["name"], text, reason)

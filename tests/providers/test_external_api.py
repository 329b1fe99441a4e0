"""Brands' own APIs over real HTTP: the requests, and the answers that count."""

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest
from aiohttp import web

from ltzd import __version__, telemetry
from ltzd.providers.external_api import ExternalApiClient, ExternalApiUnavailable
from ltzd.providers.outbound.guarded_http import GuardPolicy
from ltzd.rules.constraints.constraints import ExternalApi, is_satisfied
from ltzd.values import address_of
from tests.support.services.web_servers import served_at

USER = address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed")
CHECKSUMMED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
DEV = GuardPolicy(allow_loopback=True, timeout_seconds=0.5)
JSON = "application/json"


class Api:
    """A brand's API that gives the answer a test sets, and records its requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.set_answer("{}")
        self.base = ""

    def set_answer(self, body: str | bytes, status: int = 200, kind: str | None = JSON) -> None:
        self._body = body.encode() if isinstance(body, str) else body
        self._status = status
        self._kind = kind
        self.location: str | None = None
        self.is_silent = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.raw_path, await request.read()))
        self.headers.append(dict(request.headers))
        if self.is_silent:
            await asyncio.Event().wait()
        response = web.Response(status=self._status, body=self._body)
        response.headers.popall("Content-Type", None)
        if self._kind is not None:
            response.headers["Content-Type"] = self._kind
        if self.location is not None:
            response.headers["Location"] = self.location
        return response

    def question(self, **changed: object) -> ExternalApi:
        return ExternalApi.model_validate(
            {
                "collection_id": 7,
                "kind": "external_api",
                "url": f"{self.base}/check/{{collection_id}}?user={{user_address}}",
                "json_path": "$.allowed",
                "operator": "eq",
                "value": True,
                **changed,
            }
        )


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    api = Api()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", api.answer)
    async with served_at(application) as api.base:
        yield api


@pytest.fixture
async def apis() -> AsyncIterator[ExternalApiClient]:
    apis = ExternalApiClient(DEV)
    yield apis
    await apis.close()


async def reason_of(apis: ExternalApiClient, question: ExternalApi) -> str:
    with pytest.raises(ExternalApiUnavailable) as caught:
        await apis.ask(question, USER)
    return caught.value.reason


async def test_a_get_asks_by_its_url(api: Api, apis: ExternalApiClient) -> None:
    api.set_answer('{"allowed": true}')

    answer = await apis.ask(api.question(), USER)

    assert is_satisfied(api.question(), answer)
    assert api.requests == [("GET", f"/check/7?user={CHECKSUMMED}", b"")]
    assert api.headers[0]["User-Agent"] == f"ltzd/{__version__}"
    assert api.headers[0]["Accept"] == JSON
    assert "Content-Type" not in api.headers[0]


async def test_a_post_asks_by_its_body_too(api: Api, apis: ExternalApiClient) -> None:
    await apis.ask(api.question(method="POST", url=f"{api.base}/check"), USER)

    [(method, path, body)] = api.requests
    assert (method, path) == ("POST", "/check")
    assert json.loads(body) == {"user_address": CHECKSUMMED, "collection_id": 7}
    assert api.headers[0]["Content-Type"] == JSON


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("true", True),
        ("null", None),
        ('"gold"', "gold"),
        ("[1, {}]", [1, {}]),
        ("0.1", Decimal("0.1")),
        ("1.00", Decimal("1.00")),
        ("1e300", Decimal("1e300")),
        ("9007199254740993", 2**53 + 1),
        ("1234567890123456789012345678901", 1234567890123456789012345678901),
        ('{"a": 12345678901234567890.123456789}', {"a": Decimal("12345678901234567890.123456789")}),
    ],
)
async def test_numbers_arrive_with_every_digit(
    body: str, value: object, api: Api, apis: ExternalApiClient
) -> None:
    api.set_answer(body)

    answer = await apis.ask(api.question(), USER)

    assert (answer, repr(answer)) == (value, repr(value))


@pytest.mark.parametrize(
    "kind",
    [JSON, "application/json; charset=utf-8", "APPLICATION/JSON", "application/problem+json"],
)
async def test_json_comes_under_these_names(kind: str, api: Api, apis: ExternalApiClient) -> None:
    api.set_answer("{}", kind=kind)

    assert await apis.ask(api.question(), USER) == {}


@pytest.mark.parametrize(
    "kind",
    [None, "text/html", "text/plain", "text/json", "application/jsonx", "text/x+json", "json"],
)
async def test_under_other_names_it_is_a_failure(
    kind: str | None, api: Api, apis: ExternalApiClient
) -> None:
    api.set_answer("{}", kind=kind)

    assert await reason_of(apis, api.question()) == "the content type is not JSON's"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 418, 429, 500, 502, 503, 599])
async def test_an_error_is_a_failure_whatever_its_body_says(
    status: int, api: Api, apis: ExternalApiClient
) -> None:
    api.set_answer('{"allowed": true}', status)

    assert await reason_of(apis, api.question()) == f"status {status}"
    assert len(api.requests) == 1


@pytest.mark.parametrize("status", [200, 201, 203])
async def test_every_success_is_one(status: int, api: Api, apis: ExternalApiClient) -> None:
    api.set_answer("true", status)

    assert await apis.ask(api.question(), USER) is True


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"<html>",
        b"{",
        b"{} {}",
        b"{'a': 1}",
        b'{"a": NaN}',
        b"Infinity",
        b"\xff",
        b'"\xff"',
        b'"\\ud800"',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b"[" * 60_000,
        b"[" * 30_000 + b"]" * 30_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b"1" * 60_000,
        b"1e400",
        b"1e99999999999999999999",
        b"0.1e-99999999999999999999",
    ],
    ids=lambda body: body[:12],
)
async def test_what_is_no_json_is_a_failure(body: bytes, api: Api, apis: ExternalApiClient) -> None:
    api.set_answer(body)

    assert await reason_of(apis, api.question()) == "the body is not JSON"


async def test_what_the_guard_refuses_is_a_failure(api: Api, apis: ExternalApiClient) -> None:
    api.set_answer(b"[" + b" " * (10 << 20) + b"]")
    assert await reason_of(apis, api.question()) == "the body is longer than 65536 bytes"

    api.set_answer("{}", 302)
    api.location = f"{api.base}/other"
    assert await reason_of(apis, api.question()) == "status 302: redirects are not followed"

    api.set_answer("{}")
    api.is_silent = True
    assert await reason_of(apis, api.question()) == "no answer in time"

    assert len(api.requests) == 3


async def test_in_production_this_machine_is_not_asked(api: Api) -> None:
    apis = ExternalApiClient(GuardPolicy())
    try:
        reason = await reason_of(apis, api.question())
    finally:
        await apis.close()

    assert reason == "the scheme http is not allowed"
    assert api.requests == []


async def test_a_failure_tells_nothing_of_the_url_or_the_answer(
    api: Api, apis: ExternalApiClient
) -> None:
    api.set_answer("hunter2", 500)

    with pytest.raises(ExternalApiUnavailable) as caught:
        await apis.ask(api.question(url=f"{api.base}/?key=hunter2"), USER)

    error_text = f"{caught.value} {caught.value.reason} {caught.value.details}"
    assert "hunter2" not in error_text
    assert "127.0.0.1" not in error_text


def seen(outcome: str) -> float:
    labels = {"provider": "external_api", "outcome": outcome}
    name = "ltzd_providers_request_seconds_count"
    return telemetry.REGISTRY.get_sample_value(name, labels) or 0.0


async def test_calls_are_timed_by_their_outcome(api: Api, apis: ExternalApiClient) -> None:
    before = seen("ok"), seen("unavailable")

    await apis.ask(api.question(), USER)
    for body, status in (("{}", 500), ("rubbish", 200)):
        api.set_answer(body, status)
        await reason_of(apis, api.question())

    assert (seen("ok") - before[0], seen("unavailable") - before[1]) == (1, 2)

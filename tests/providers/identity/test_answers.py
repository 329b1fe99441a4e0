"""The provider's headers and errors, read without a provider."""

import time
from collections.abc import Iterator

import pytest

from ltzd.providers.identity.answers import (
    error_code_in,
    existing_subject_in,
    requested_wait,
)
from ltzd.providers.outbound.http_client import HttpResponse

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "-2"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:05 GMT"}, 5.0),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": "nan"}, None),
        ({"x-ratelimit-reset": "1800000003"}, 3.0),
        ({"x-ratelimit-reset": "soon"}, None),
    ],
)
def test_the_wish_to_wait_is_read_from_any_known_header(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert requested_wait(HttpResponse(429, headers, b""), NOW) == seconds


@pytest.mark.parametrize(
    "date",
    ["Fri Jan 15 08:00:05 2027", "Fri, 15 Jan 2027 08:00:05 -0000"],
    ids=["asctime", "-0000"],
)
def test_a_date_without_a_zone_is_in_utc_whatever_the_machines_zone_is(
    date: str, machine_in_new_york: None
) -> None:
    assert requested_wait(HttpResponse(429, {"retry-after": date}, b""), NOW) == 5.0


@pytest.fixture
def machine_in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_cause_counts_before_the_text_of_the_error() -> None:
    body = b'{"error": "by did:privy:text", "cause": "did:privy:cause"}'

    assert existing_subject_in(HttpResponse(422, {}, body)) == "did:privy:cause"


@pytest.mark.parametrize("code", ['"a b"', "7", '"ann@shop.example"', "null"])
def test_only_a_plain_error_code_may_reach_the_log(code: str) -> None:
    assert error_code_in(HttpResponse(400, {}, b'{"code": %s}' % code.encode())) is None

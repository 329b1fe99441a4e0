"""The provider's headers and errors, read without a provider."""

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


def test_a_cause_counts_before_the_text_of_the_error() -> None:
    body = b'{"error": "by did:privy:text", "cause": "did:privy:cause"}'

    assert existing_subject_in(HttpResponse(422, {}, body)) == "did:privy:cause"


@pytest.mark.parametrize("code", ['"a b"', "7", '"ann@shop.example"', "null"])
def test_only_a_plain_error_code_may_reach_the_log(code: str) -> None:
    assert error_code_in(HttpResponse(400, {}, b'{"code": %s}' % code.encode())) is None

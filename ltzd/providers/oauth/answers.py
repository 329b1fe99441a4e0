"""Verdicts about accounts, and the reading of answers that all OAuth providers share.

Nothing that a provider sends is trusted. An answer that the provider does not document raises
AccountLookupUnavailable, which is the verdict `unavailable` and never `missing`; its reason is fit
for a log and holds nothing that the provider or the caller wrote.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
import structlog

from ltzd.errors import AccountLookupUnavailable
from ltzd.providers.outbound.http_client import HttpResponse
from ltzd.providers.outbound.json_bodies import finite_number
from ltzd.rules.oauth.accounts import OAuthProvider
from ltzd.rules.webhooks import retry_after

Verdict = Literal["exists", "missing", "cannot_check", "unavailable"]

_MAX_WAIT_SECONDS: Final = 3600.0
_MAX_NAME_LENGTH: Final = 100
_log = structlog.get_logger(__name__)


class AccountVerification(msgspec.Struct, frozen=True):
    """A provider's answer about an account; the names are the provider's, for verdict `exists`.

    `missing` is also an account that is no person's, such as a bot's. `cannot_check` is every other
    answer that a repeat would not change. `reason` explains these two to the caller.
    """

    verdict: Verdict
    username: str | None = None
    name: str | None = None
    email: str | None = None
    reason: str | None = None


def missing(reason: str) -> AccountVerification:
    return AccountVerification("missing", reason=reason)


def cannot_check(reason: str) -> AccountVerification:
    return AccountVerification("cannot_check", reason=reason)


def required_object(response: HttpResponse) -> dict[str, object]:
    """Raises AccountLookupUnavailable for a body that is no JSON object."""
    body = response.json_object()
    if body is None:
        raise AccountLookupUnavailable(f"status {response.status} without a JSON object")
    return body


def nested_object(response: HttpResponse, *names: str) -> dict[str, object]:
    """Return the object under `names`; an empty one if there is none, whatever the body is."""
    value: object = response.json_object()
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def is_rate_limited(response: HttpResponse) -> bool:
    """GitHub refuses too many requests with 403 as well."""
    return response.status == 429 or (
        response.status == 403
        and (
            "retry-after" in response.headers
            or response.headers.get("x-ratelimit-remaining") == "0"
        )
    )


def requested_wait(response: HttpResponse, now: datetime) -> float | None:
    """Return the seconds that the provider asks us to wait, from any of six known places.

    None if it names no time.
    """
    waits = (
        # To the millisecond, unlike the header.
        finite_number(nested_object(response).get("retry_after")),
        finite_number(nested_object(response, "parameters").get("retry_after")),
        _seconds_after(response.headers.get("retry-after"), now),
        finite_number(response.headers.get("x-ratelimit-reset-after")),
        _seconds_until(response.headers.get("x-rate-limit-reset"), now),
        _seconds_until(response.headers.get("x-ratelimit-reset"), now),
    )
    wait = next((seconds for seconds in waits if seconds is not None), None)
    return None if wait is None else min(max(wait, 0.0), _MAX_WAIT_SECONDS)


def unexpected(response: HttpResponse) -> AccountLookupUnavailable:
    return AccountLookupUnavailable(f"status {response.status}")


def refused(provider: OAuthProvider, response: HttpResponse) -> AccountLookupUnavailable:
    """The provider refuses our credential, not the account: an error for the operator."""
    _log.error("account_look_up_misconfigured", provider=provider, status=response.status)
    return AccountLookupUnavailable(
        f"the provider refuses our credential with status {response.status}"
    )


def refused_or_unexpected(
    provider: OAuthProvider, response: HttpResponse
) -> AccountLookupUnavailable:
    return refused(provider, response) if response.status in {401, 403} else unexpected(response)


def name_in(row: Mapping[str, object], field: str) -> str | None:
    """Return None for a name that is empty or that nobody could read."""
    value = row.get(field)
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        return None
    return value.strip()[:_MAX_NAME_LENGTH]


def required_name(row: Mapping[str, object], field: str) -> str:
    name = name_in(row, field)
    if name is None:
        raise AccountLookupUnavailable("the account has no username")
    return name


def number_in(row: Mapping[str, object], field: str) -> int | None:
    value = row.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_in(row: Mapping[str, object], field: str) -> str:
    value = row.get(field)
    return value if isinstance(value, str) else ""


def check_same(expected: object, actual: object) -> None:
    """Raises AccountLookupUnavailable if the answer is about another account."""
    if actual != expected or type(actual) is not type(expected):
        raise AccountLookupUnavailable("the answer is about another account")


def _seconds_after(text: str | None, now: datetime) -> float | None:
    wait = retry_after(text, now)
    return None if wait is None else wait.total_seconds()


def _seconds_until(text: str | None, now: datetime) -> float | None:
    at = finite_number(text)
    return None if at is None else at - now.astimezone(UTC).timestamp()

"""What all OAuth providers' answers have in common: the verdict, the reading, the wish to wait.

Nothing that a provider sends is trusted. An answer that the provider does not document raises
AccountLookupUnavailable, which is the verdict `unavailable` and never `missing`; its reason is fit
for a log and holds nothing that the provider or the caller wrote.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

import structlog

from ltzd.errors import Unavailable
from ltzd.providers.outbound.bounded_json import InvalidJsonError, decode_json
from ltzd.rules.oauth.accounts import OAuthProvider
from ltzd.rules.webhooks import retry_after

Verdict = Literal["exists", "missing", "cannot_check", "unavailable"]

_LONGEST_WAIT_SECONDS: Final = 3600.0
_LONGEST_NAME: Final = 100
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AccountVerification:
    """What a provider says of an account; the names are its own, for verdict `exists`.

    `missing` is also an account that is no person's, such as a bot's. `cannot_check` is every other
    answer that asking again would not change. `reason` explains these two to the caller.
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


class AccountLookupUnavailable(Unavailable):
    def __init__(self, reason: str) -> None:
        super().__init__("The OAuth provider gave no usable answer", reason=reason)
        self.reason = reason


class TransientLookupFailure(AccountLookupUnavailable):
    """A repeat may cure it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`headers` are found in any letter case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json_object(self) -> dict[str, object]:
        """Raises AccountLookupUnavailable."""
        found = self._decoded()
        if not isinstance(found, dict):
            raise AccountLookupUnavailable(f"status {self.status} without a JSON object")
        return found

    def part(self, *names: str) -> dict[str, object]:
        """The object inside; empty if there is none, whatever the body is."""
        found = self._decoded()
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def _decoded(self) -> object:
        try:
            return decode_json(self.body)
        except InvalidJsonError:
            return None

    @property
    def is_limiting(self) -> bool:
        """GitHub refuses too many requests with 403 as well."""
        return self.status == 429 or (
            self.status == 403
            and ("retry-after" in self.headers or self.headers.get("x-ratelimit-remaining") == "0")
        )

    def wait_wished(self, now: datetime) -> float | None:
        """Seconds; None if the provider names none. It may say so in any of these places."""
        wishes = (
            _seconds(self.part().get("retry_after")),  # to the millisecond, unlike the header
            _seconds(self.part("parameters").get("retry_after")),
            _after_header(self.headers.get("retry-after"), now),
            _seconds(self.headers.get("x-ratelimit-reset-after")),
            _until(self.headers.get("x-rate-limit-reset"), now),
            _until(self.headers.get("x-ratelimit-reset"), now),
        )
        wished = next((seconds for seconds in wishes if seconds is not None), None)
        return None if wished is None else min(max(wished, 0.0), _LONGEST_WAIT_SECONDS)


def unexpected(answer: Answer) -> AccountLookupUnavailable:
    return AccountLookupUnavailable(f"status {answer.status}")


def refused(provider: OAuthProvider, answer: Answer) -> AccountLookupUnavailable:
    """Our own credential, not the account: the operator has to know."""
    _log.error("account_look_up_misconfigured", provider=provider, status=answer.status)
    return AccountLookupUnavailable(
        f"the provider refuses our credential with status {answer.status}"
    )


def refused_or_unexpected(provider: OAuthProvider, answer: Answer) -> AccountLookupUnavailable:
    return refused(provider, answer) if answer.status in {401, 403} else unexpected(answer)


def name_in(row: Mapping[str, object], field: str) -> str | None:
    """None for what is no name that anybody could read."""
    value = row.get(field)
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        return None
    return value.strip()[:_LONGEST_NAME]


def needed_name(row: Mapping[str, object], field: str) -> str:
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


def must_be(expected: object, found: object) -> None:
    """The account of the answer is the one that was asked for."""
    if found != expected or type(found) is not type(expected):
        raise AccountLookupUnavailable("the account is not the one asked for")


def _after_header(text: str | None, now: datetime) -> float | None:
    wished = retry_after(text, now)
    return None if wished is None else wished.total_seconds()


def _until(text: str | None, now: datetime) -> float | None:
    at = _seconds(text)
    return None if at is None else at - now.astimezone(UTC).timestamp()


def _seconds(value: object) -> float | None:
    try:
        seconds = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None

"""From every error to its answer: one table for statuses, one envelope per surface.

Texts of `Refused` are written for callers and shown. Those of `Unavailable`, `Broken` and foreign
exceptions may name hosts or rows: they are logged, and the caller gets a fixed sentence.
"""

import math
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog
from sanic.exceptions import MethodNotAllowed, RequestCancelled, SanicException
from sanic.handlers import ErrorHandler
from sanic.request import Request

from ltzd import telemetry
from ltzd.errors import (
    AccountLookupUnavailable,
    AccountRefused,
    AutomationDisabled,
    BrandUnknown,
    BudgetExhausted,
    ChannelNotAllowed,
    CheckInRefused,
    ClaimLimitReached,
    CollectionNotFound,
    ContractNotWhitelisted,
    CooldownActive,
    DatabaseUnavailable,
    DnsUnavailable,
    DomainUnauthorized,
    DuplicateEvent,
    EventNotConfigured,
    HolderChanged,
    HostSiteBusy,
    HostSiteUnavailable,
    IdempotencyKeyReused,
    IdentityUnavailable,
    InvalidFields,
    LinkRefused,
    LoginRateLimited,
    LtzdError,
    MaxClaimsReached,
    MilestoneRefused,
    MintPending,
    MissingFields,
    NoChargesRemaining,
    NodeUnavailable,
    NotFound,
    NotLoggedIn,
    PaymentRefused,
    PaymentsUnavailable,
    RateLimited,
    RedemptionRefused,
    Refused,
    RelayPending,
    RewardTooLarge,
    SignatureRefused,
    SiteUnknown,
    TokenNotFound,
    TooManyAttempts,
    TransactionFailed,
    Unauthorized,
    Unavailable,
    ValidationFailed,
)
from ltzd.http.responses import Reply, json_reply
from ltzd.rules.oauth.ids import OAuthIdInvalid

log = structlog.get_logger()


class BodyTooLarge(Refused):
    """Spec 4: over 10 KB on the event handler."""


class BodyUnreadable(Refused):
    """Not JSON, not an object, compressed, or of another content type."""


class NotLocal(Refused):
    """The admin port was asked under a name that is not this machine's."""


class ForeignOrigin(Refused):
    """The admin port was asked by a web page from elsewhere."""


class TokenNeeded(Refused):
    """The admin port wants its token."""


class HttpsRequired(Refused):
    """A proxy of ours says that the request came to it over plain http."""


class ProviderUnknown(Refused):
    """No OAuth provider of this name. Details: `valid_providers`."""


class MissingPerkId(Refused):
    """Spec 7.5, and so is the next."""


class MissingMilestone(Refused):
    pass


class InvalidParams(Refused):
    """Of the site plugin. `params` tells what is wrong with each, by its name."""

    def __init__(self, params: dict[str, str]) -> None:
        super().__init__(f"Invalid parameter(s): {', '.join(params)}", params=params)
        self.params = params


ANSWERS: dict[type[LtzdError], tuple[int, str]] = {
    BodyTooLarge: (413, "PAYLOAD_TOO_LARGE"),
    BodyUnreadable: (400, "INVALID_BODY"),
    ProviderUnknown: (400, "PROVIDER_UNKNOWN"),
    OAuthIdInvalid: (400, "OAUTH_ID_INVALID"),
    AccountRefused: (400, "ACCOUNT_REFUSED"),
    InvalidFields: (400, "INVALID_FIELDS"),
    MissingFields: (400, "MISSING_FIELDS"),
    EventNotConfigured: (400, "EVENT_NOT_CONFIGURED"),
    RewardTooLarge: (400, "REWARD_TOO_LARGE"),
    BrandUnknown: (403, "BRAND_UNKNOWN"),
    AutomationDisabled: (403, "AUTOMATION_DISABLED"),
    DomainUnauthorized: (403, "DOMAIN_UNAUTHORIZED"),
    ChannelNotAllowed: (403, "CHANNEL_NOT_ALLOWED"),
    NotLocal: (403, "FORBIDDEN"),
    ForeignOrigin: (403, "FORBIDDEN"),
    HttpsRequired: (403, "HTTPS_REQUIRED"),
    ContractNotWhitelisted: (403, "CONTRACT_NOT_WHITELISTED"),
    ValidationFailed: (403, "VALIDATION_FAILED"),
    TokenNeeded: (401, "UNAUTHORIZED"),
    Unauthorized: (401, "UNAUTHORIZED"),
    CollectionNotFound: (404, "COLLECTION_NOT_FOUND"),
    TokenNotFound: (404, "TOKEN_NOT_FOUND"),
    NotFound: (404, "NOT_FOUND"),
    DuplicateEvent: (409, "DUPLICATE_EVENT"),
    ClaimLimitReached: (409, "CLAIM_LIMIT_REACHED"),
    HolderChanged: (409, "HOLDER_CHANGED"),
    NoChargesRemaining: (409, "NO_CHARGES_REMAINING"),
    IdempotencyKeyReused: (409, "IDEMPOTENCY_KEY_REUSED"),
    CooldownActive: (429, "COOLDOWN_ACTIVE"),
    MaxClaimsReached: (429, "MAX_CLAIMS_REACHED"),
    BudgetExhausted: (429, "BUDGET_EXHAUSTED"),
    LoginRateLimited: (429, "LOG_INS_LIMITED"),
    RateLimited: (429, "RATE_LIMIT_EXCEEDED"),
    TooManyAttempts: (429, "TOO_MANY_TRIES"),
    TransactionFailed: (500, "TRANSACTION_FAILED"),
    PaymentRefused: (400, "PAYMENT_REFUSED"),
    SiteUnknown: (500, "NOT_CONFIGURED"),
    NotLoggedIn: (401, "NOT_LOGGED_IN"),
    MissingPerkId: (400, "MISSING_PERK_ID"),
    MissingMilestone: (400, "MISSING_MILESTONE"),
    InvalidParams: (400, "INVALID_PARAM"),
    CheckInRefused: (400, "CHECKIN_FAILED"),
    RedemptionRefused: (400, "REDEEM_FAILED"),
    MilestoneRefused: (400, "CLAIM_FAILED"),
    LinkRefused: (400, "LINK_FAILED"),
    Refused: (400, "REFUSED"),
    IdentityUnavailable: (500, "IDENTITY_UNAVAILABLE"),
    AccountLookupUnavailable: (500, "IDENTITY_UNAVAILABLE"),
    PaymentsUnavailable: (500, "PAYMENTS_UNAVAILABLE"),
    MintPending: (500, "MINT_PENDING"),
    RelayPending: (503, "RELAY_PENDING"),
    DnsUnavailable: (503, "DNS_UNAVAILABLE"),
    HostSiteBusy: (503, "HOST_SITE_BUSY"),
    HostSiteUnavailable: (503, "HOST_SITE_UNAVAILABLE"),
    DatabaseUnavailable: (503, "DATABASE_UNAVAILABLE"),
    NodeUnavailable: (503, "NODE_UNAVAILABLE"),
    Unavailable: (503, "UNAVAILABLE"),
    LtzdError: (500, "INTERNAL_ERROR"),
}


FIXED_TEXTS: dict[str, str] = {
    "IDENTITY_UNAVAILABLE": "Identity provider unavailable",
    "DATABASE_UNAVAILABLE": "Database unavailable",
    "NODE_UNAVAILABLE": "Blockchain node unavailable",
    "PAYMENTS_UNAVAILABLE": "Payment provider unavailable",
    "MINT_PENDING": "The payment is recorded and will be minted; ask again",
    "RELAY_PENDING": "The transaction is signed, but no node has taken it yet; ask again with the "
    "same idempotency key",
    "DNS_UNAVAILABLE": "DNS resolver unavailable",
    "HOST_SITE_BUSY": "Too many requests wait for the host site",
    "HOST_SITE_UNAVAILABLE": "Host site unavailable",
    "UNAVAILABLE": "Service unavailable",
    "INTERNAL_ERROR": "Internal server error",
}

RETRY_SECONDS: Mapping[type[LtzdError], str] = {
    HostSiteBusy: "5",  # A site has so long to answer; then fewer requests wait for the site.
    RelayPending: "10",
}

PROTOCOL: dict[int, tuple[str, str]] = {
    404: ("NOT_FOUND", "Unknown endpoint"),
    405: ("METHOD_NOT_ALLOWED", "Method not allowed"),
    408: ("REQUEST_TIMEOUT", "The request did not arrive in time"),
    413: ("PAYLOAD_TOO_LARGE", "Request too large"),
    414: ("URI_TOO_LONG", "Request URL too long"),
    417: ("EXPECTATION_FAILED", "Unknown Expect header"),
    503: ("TIMEOUT", "The answer took too long"),
}
"""What Sanic itself refuses; other statuses below 500 become 400."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A refusal before a surface puts it into its envelope."""

    status: int
    code: str
    text: str
    details: dict[str, object] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


Envelope = Callable[[Answer], dict[str, object]]


def event_handler_envelope(answer: Answer) -> dict[str, object]:
    """Spec 7.1."""
    body: dict[str, object] = {"success": False, "error": answer.text}
    return body | {"details": answer.details} if answer.details else body


def relayer_envelope(answer: Answer) -> dict[str, object]:
    """Spec 7.2; also for paths that belong to no surface."""
    body: dict[str, object] = {"error": answer.text, "code": answer.code}
    return body | {"details": answer.details} if answer.details else body


def invalidation_envelope(answer: Answer) -> dict[str, object]:
    """Spec 7.6 has no details, so that the text itself names what is wrong with the fields."""
    return {"success": False, "error": _text_with_faults(answer)}


def payment_mint_envelope(answer: Answer) -> dict[str, object]:
    """Spec 7.4 has no details either."""
    return {"success": False, "message": _text_with_faults(answer)}


def _text_with_faults(answer: Answer) -> str:
    faults = answer.details.get("errors")
    return "; ".join(faults) if isinstance(faults, list) else answer.text


def pregeneration_envelope(answer: Answer) -> dict[str, object]:
    """Spec 7.3: each body has exactly the fields shown there."""
    body: dict[str, object] = {"error": answer.text}
    if answer.status >= 500:
        return body | {"details": "The same request may be sent again: it makes no second wallet"}
    match answer.code:
        case "MISSING_FIELDS":
            return body | {"required": list(PREGENERATION_REQUIRED)}
        case "INVALID_FIELDS":
            return body | {"details": _text_with_faults(answer)}
        case code:
            return body | {name: answer.details[name] for name in _SHOWN.get(code, ())}


PREGENERATION_REQUIRED = ("brand_id", "oauth_provider", "oauth_user_id")

_SHOWN = {
    "PROVIDER_UNKNOWN": ("valid_providers",),
    "OAUTH_ID_INVALID": ("details", "example"),
    "ACCOUNT_REFUSED": ("hint", "provider"),
}

PAYMENT_MINT = "/service-api/payment-mint"
PREGENERATION = "/service-api/pregenerate-user"

ENVELOPES: tuple[tuple[str, Envelope], ...] = (
    (PAYMENT_MINT, payment_mint_envelope),
    (PREGENERATION, pregeneration_envelope),
    ("/service-api", event_handler_envelope),
    ("/invalidate-external-api", invalidation_envelope),
    ("/constraint-updater", invalidation_envelope),
)


def envelope_of(path: str) -> Envelope:
    for prefix, envelope in ENVELOPES:
        if path == prefix or path.startswith(prefix + "/"):
            return envelope
    return relayer_envelope


def status_of(path: str, answer: Answer) -> int:
    """Spec 7.3 knows one status for what is not the caller's fault."""
    is_ours = answer.status >= 500 and envelope_of(path) is pregeneration_envelope
    return 500 if is_ours else answer.status


def answer_of(error: BaseException) -> Answer:
    if isinstance(error, LtzdError):
        return _own(error)
    if isinstance(error, SanicException):
        return _protocol(error)
    if isinstance(error, RequestCancelled):
        return Answer(503, "CANCELLED", "Request cancelled")
    return Answer(500, "INTERNAL_ERROR", FIXED_TEXTS["INTERNAL_ERROR"])


def _own(error: LtzdError) -> Answer:
    status, code = next(ANSWERS[kind] for kind in type(error).__mro__ if kind in ANSWERS)
    if not isinstance(error, Refused):
        seconds = RETRY_SECONDS.get(type(error))
        headers = {} if seconds is None else {"Retry-After": seconds}
        return Answer(status, code, FIXED_TEXTS[code], headers=headers)
    return Answer(status, code, error.message, error.details, _headers(error))


def _headers(error: Refused) -> dict[str, str]:
    if isinstance(error, SignatureRefused):
        return {"WWW-Authenticate": "LTZ-HMAC"}
    if isinstance(error, Unauthorized | TokenNeeded):
        return {"WWW-Authenticate": "Bearer"}
    seconds = error.details.get("cooldownSeconds", error.details.get("retryAfterSeconds"))
    if not isinstance(seconds, int):
        return {}  # what does not end by itself, such as a maximum
    when = {"Retry-After": str(seconds)}
    return when | _rate_headers(error, seconds) if isinstance(error, RateLimited) else when


def _rate_headers(error: RateLimited, seconds: int) -> dict[str, str]:
    """Spec 8: the reset is in Unix seconds."""
    return {
        "X-RateLimit-Limit": str(error.details.get("limit")),
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": str(math.ceil(time.time()) + seconds),
    }


def _protocol(error: SanicException) -> Answer:
    status = error.status_code if error.status_code in PROTOCOL or error.status_code == 500 else 400
    if status == 500:
        return Answer(500, "INTERNAL_ERROR", FIXED_TEXTS["INTERNAL_ERROR"])
    code, text = PROTOCOL.get(status, ("BAD_REQUEST", "Malformed request"))
    return Answer(status, code, text)


def _allowed(error: MethodNotAllowed) -> set[str]:
    methods = error.headers.get("Allow", "").split(",")
    return {method.strip() for method in methods} - {""}


class OwnAnswers(Protocol):
    """Of a surface that has statuses of its own, too: other than those of `ANSWERS`."""

    def covers(self, path: str) -> bool: ...

    def reply(self, path: str, answer: Answer) -> tuple[int, dict[str, object]]:
        """Status and body."""
        ...


class Refusals(ErrorHandler):
    """Sanic asks it for every exception, its own included; nothing here may raise.

    `always_allowed` are methods that are answered on every path, whatever its route says.
    """

    def __init__(self, always_allowed: frozenset[str], own: OwnAnswers | None = None) -> None:
        super().__init__()
        self._always_allowed = always_allowed
        self._own = own

    def response(self, request: Request, exception: BaseException) -> Reply:
        answer, path = told(exception), path_of(request)
        if self._own is not None and self._own.covers(path):
            status, body = self._own.reply(path, answer)
            return json_reply(body, status, answer.headers if status in {429, 503} else None)
        headers = answer.headers
        if isinstance(exception, MethodNotAllowed):
            allowed = _allowed(exception) | self._always_allowed
            headers = {"Allow": ", ".join(sorted(allowed))}
        return json_reply(envelope_of(path)(answer), status_of(path, answer), headers)


def told(error: BaseException) -> Answer:
    """What the caller hears; counted, and logged if it is not his fault."""
    answer = answer_of(error)
    telemetry.HTTP_REFUSALS.labels(answer.code.lower()).inc()
    if answer.status >= 500:
        _log(error, answer)
    return answer


def path_of(request: Request) -> str:
    """The path, also of requests too broken to have one."""
    if request.method == "NONE":
        return _path_begun(request)
    try:
        path: str = request.path
    except (AttributeError, UnicodeDecodeError):
        return _path_in(request.raw_url)
    return _path_in(request.raw_url) if path == "*" else path


def _path_begun(request: Request) -> str:
    """Of a head that Sanic gave up reading, such as one too large: what has arrived of its path."""
    stream: Any = request.stream
    words = bytes(stream.recv_buffer[:512]).split(b" ", 2)
    return _path_in(words[1]) if len(words) > 1 else "*"


def _path_in(target: bytes) -> str:
    return target.partition(b"?")[0].decode("ascii", "replace")


def _log(error: BaseException, answer: Answer) -> None:
    if isinstance(error, Unavailable):
        log.warning("http.unavailable", code=answer.code, reason=error.message)
    elif answer.code == "INTERNAL_ERROR":
        log.error("http.failed", error=described(error), trace=frames(error))
    elif not isinstance(error, TransactionFailed):
        log.info("http.gave_up", code=answer.code)


def described(error: BaseException) -> str:
    """What may be logged of an exception: a database's own text holds the row."""
    kind = type(error).__name__
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate is not None:
        return f"{kind} {sqlstate} {getattr(error, 'constraint_name', None) or ''}".rstrip()
    return f"{kind}: {error}"


def frames(error: BaseException) -> str:
    return "".join(traceback.format_tb(error.__traceback__))

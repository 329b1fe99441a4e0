"""Translates every exception into an HTTP error, and the error into its surface's format.

One table has the status and the code of each error class. Section 7 of the specification gives
each surface a body of its own: the surface's package brings its `ErrorFormat`, and `app.py` says
below which paths it applies.

The message of a `Refused` is written for the caller and sent. The messages of `Unavailable`,
`Broken` and foreign exceptions may name hosts or rows: they are logged, and the caller gets the
text from `FIXED_TEXTS`.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import msgspec
import structlog
from msgspec.structs import replace
from pydantic import BaseModel
from sanic.exceptions import (
    BadRequest,
    MethodNotAllowed,
    PayloadTooLarge,
    RequestCancelled,
    SanicException,
)
from sanic.handlers import ErrorHandler
from sanic.request import Request

from ltzd import errors, telemetry
from ltzd.concurrency.line_limits import LineLimits
from ltzd.concurrency.loggable_errors import loggable, traceback_of
from ltzd.errors import LtzdError, Refused
from ltzd.http.head_faults import fault_in, is_url_too_long
from ltzd.http.responses import Reply, json_reply
from ltzd.rules.oauth.ids import OAuthIdInvalid

log = structlog.get_logger()


class RequestError(Refused):
    """An error that only the HTTP layer raises. Each subclass sets its status and code.

    `condition` says when it occurs, for the OpenAPI document; braces name details of the error.
    """

    status: ClassVar[int] = 400
    code: ClassVar[str]
    condition: ClassVar[str]


class BodyTooLarge(RequestError):
    """The body is over the limit of its endpoint."""

    status = 413
    code = "PAYLOAD_TOO_LARGE"
    condition = "the body is larger than {maxBytes:,} bytes"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"Request body is larger than {limit_bytes} bytes", maxBytes=limit_bytes)


class BodyUnreadable(RequestError):
    """The body is not JSON, not an object, compressed, or of another content type."""

    code = "INVALID_BODY"
    condition = "the body is not a JSON object"


class RequestMalformed(RequestError):
    """The request's headers are malformed. `fault` says in which way."""

    code = "BAD_REQUEST"
    condition = "the request's headers are malformed"

    def __init__(self, fault: str) -> None:
        super().__init__(f"Malformed request: {fault}")


class UrlTooLong(RequestError):
    """The URL does not fit into the largest head that is read."""

    status = 414
    code = "URI_TOO_LONG"
    condition = "the URL is too long"

    def __init__(self) -> None:
        super().__init__("Request URL too long")


class HeadersTooLarge(RequestError):
    """The request's line and headers are larger than the largest head that is read."""

    status = 431
    code = "HEADERS_TOO_LARGE"
    condition = "the request's headers are too large"

    def __init__(self) -> None:
        super().__init__("Request headers too large")


class HttpsRequired(RequestError):
    """A trusted proxy reports that the request reached it over plain HTTP."""

    status = 403
    code = "HTTPS_REQUIRED"
    condition = "the request reached a proxy over plain HTTP"


STATUSES: Mapping[type[LtzdError], tuple[int, str]] = {
    OAuthIdInvalid: (400, "OAUTH_ID_INVALID"),
    errors.AccountRefused: (400, "ACCOUNT_REFUSED"),
    errors.InvalidFields: (400, "INVALID_FIELDS"),
    errors.MissingFields: (400, "MISSING_FIELDS"),
    errors.EventNotConfigured: (400, "EVENT_NOT_CONFIGURED"),
    errors.RewardTooLarge: (400, "REWARD_TOO_LARGE"),
    errors.PaymentRefused: (400, "PAYMENT_REFUSED"),
    errors.CheckInRefused: (400, "CHECKIN_FAILED"),
    errors.RedemptionRefused: (400, "REDEEM_FAILED"),
    errors.MilestoneRefused: (400, "CLAIM_FAILED"),
    errors.LinkRefused: (400, "LINK_FAILED"),
    errors.Unauthorized: (401, "UNAUTHORIZED"),
    errors.NotLoggedIn: (401, "NOT_LOGGED_IN"),
    errors.BrandUnknown: (403, "BRAND_UNKNOWN"),
    errors.AutomationDisabled: (403, "AUTOMATION_DISABLED"),
    errors.DomainUnauthorized: (403, "DOMAIN_UNAUTHORIZED"),
    errors.ChannelNotAllowed: (403, "CHANNEL_NOT_ALLOWED"),
    errors.ContractNotWhitelisted: (403, "CONTRACT_NOT_WHITELISTED"),
    errors.ValidationFailed: (403, "VALIDATION_FAILED"),
    errors.CollectionNotFound: (404, "COLLECTION_NOT_FOUND"),
    errors.TokenNotFound: (404, "TOKEN_NOT_FOUND"),
    errors.NotFound: (404, "NOT_FOUND"),
    errors.DuplicateEvent: (409, "DUPLICATE_EVENT"),
    errors.ClaimLimitReached: (409, "CLAIM_LIMIT_REACHED"),
    errors.HolderChanged: (409, "HOLDER_CHANGED"),
    errors.NoChargesRemaining: (409, "NO_CHARGES_REMAINING"),
    errors.IdempotencyKeyReused: (409, "IDEMPOTENCY_KEY_REUSED"),
    errors.CooldownActive: (429, "COOLDOWN_ACTIVE"),
    errors.MaxClaimsReached: (429, "MAX_CLAIMS_REACHED"),
    errors.BudgetExhausted: (429, "BUDGET_EXHAUSTED"),
    errors.LoginRateLimited: (429, "LOG_INS_LIMITED"),
    errors.RateLimited: (429, "RATE_LIMIT_EXCEEDED"),
    errors.ShareExceeded: (429, "TOO_MANY_REQUESTS"),
    errors.TooManyAttempts: (429, "TOO_MANY_TRIES"),
    errors.TransactionFailed: (500, "TRANSACTION_FAILED"),
    errors.SiteUnknown: (500, "NOT_CONFIGURED"),
    errors.IdentityUnavailable: (500, "IDENTITY_UNAVAILABLE"),
    errors.AccountLookupUnavailable: (500, "IDENTITY_UNAVAILABLE"),
    errors.PaymentsUnavailable: (500, "PAYMENTS_UNAVAILABLE"),
    errors.MintPending: (500, "MINT_PENDING"),
    errors.Overloaded: (503, "OVERLOADED"),
    errors.RelayPending: (503, "RELAY_PENDING"),
    errors.OutcomeUnknown: (503, "OUTCOME_UNKNOWN"),
    errors.DnsUnavailable: (503, "DNS_UNAVAILABLE"),
    errors.HostSiteBusy: (503, "HOST_SITE_BUSY"),
    errors.HostSiteUnavailable: (503, "HOST_SITE_UNAVAILABLE"),
    errors.DatabaseUnavailable: (503, "DATABASE_UNAVAILABLE"),
    errors.NodeUnavailable: (503, "NODE_UNAVAILABLE"),
    Refused: (400, "REFUSED"),
    errors.Unavailable: (503, "UNAVAILABLE"),
    LtzdError: (500, "INTERNAL_ERROR"),
}
"""Status and code by class; a class that is not listed has those of its nearest base."""

FIXED_TEXTS: Mapping[str, str] = {
    "IDENTITY_UNAVAILABLE": "Identity provider unavailable",
    "DATABASE_UNAVAILABLE": "Database unavailable",
    "NODE_UNAVAILABLE": "Blockchain node unavailable",
    "PAYMENTS_UNAVAILABLE": "Payment provider unavailable",
    "MINT_PENDING": "The payment is recorded and will be minted; repeat the request",
    "RELAY_PENDING": "The transaction is signed, but no node has accepted it yet; repeat the "
    "request with the same idempotency key",
    "OUTCOME_UNKNOWN": "The transaction may have been sent, or may still be sent; repeat the "
    "request with the same idempotency key",
    "OVERLOADED": "The service is busy; repeat the request later",
    "DNS_UNAVAILABLE": "DNS resolver unavailable",
    "HOST_SITE_BUSY": "Too many requests wait for the host site",
    "HOST_SITE_UNAVAILABLE": "Host site unavailable",
    "UNAVAILABLE": "Service unavailable",
    "INTERNAL_ERROR": "Internal server error",
}

RETRY_SECONDS: Mapping[type[LtzdError], int] = {
    errors.MintPending: 10,
    errors.RelayPending: 10,
    errors.OutcomeUnknown: 10,
    errors.Unavailable: 5,
}
"""The Retry-After header of errors that carry no time of their own.

A class that is not listed has the seconds of its nearest base, so every error that ends by itself
says when to repeat the request. Five seconds cost a caller little after a short outage, and spare
the service a storm during a long one.
"""

PROTOCOL_ERRORS: Mapping[int, tuple[str, str]] = {
    404: ("NOT_FOUND", "Unknown endpoint"),
    405: ("METHOD_NOT_ALLOWED", "Method not allowed"),
    408: ("REQUEST_TIMEOUT", "The request did not arrive in time"),
    413: ("PAYLOAD_TOO_LARGE", "Request too large"),
    417: ("EXPECTATION_FAILED", "Unknown Expect header"),
    503: ("TIMEOUT", "The response took too long"),
}
"""Code and text of the errors that Sanic raises. Any other status below 500 becomes 400."""


class HttpError(msgspec.Struct, frozen=True):
    """An error before its surface gives it a body."""

    status: int
    code: str
    message: str
    details: dict[str, object] = msgspec.field(default_factory=dict)
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class ErrorReply(msgspec.Struct, frozen=True):
    """An error in the form in which it is sent."""

    status: int
    body: dict[str, object]
    headers: dict[str, str]


class ErrorFormat(Protocol):
    """How a surface sends its errors."""

    def reply(self, error: HttpError, path: str) -> ErrorReply: ...

    def model_of(self, status: int) -> type[BaseModel]:
        """The model that describes the bodies of this status."""
        ...


class Envelope(msgspec.Struct, frozen=True):
    """The format of a surface whose errors keep their status and share one shape."""

    body: Callable[[HttpError], dict[str, object]]
    model: type[BaseModel]

    def reply(self, error: HttpError, _path: str) -> ErrorReply:
        return ErrorReply(error.status, self.body(error), error.headers)

    def model_of(self, _status: int) -> type[BaseModel]:
        return self.model


def message_with_faults(error: HttpError) -> str:
    """For formats without details: the field faults if there are any, else the message."""
    faults = error.details.get("errors")
    return "; ".join(faults) if isinstance(faults, list) else error.message


def http_error_of(error: BaseException) -> HttpError:
    if isinstance(error, LtzdError):
        return _ltzd_error(error)
    if isinstance(error, SanicException):
        return _protocol_error(error)
    if isinstance(error, RequestCancelled):
        return HttpError(503, "CANCELLED", "Request cancelled", headers=retry_header())
    return HttpError(500, "INTERNAL_ERROR", FIXED_TEXTS["INTERNAL_ERROR"])


def _ltzd_error(error: LtzdError) -> HttpError:
    status, code = _status_and_code(error)
    if isinstance(error, errors.Unavailable):
        return HttpError(status, code, FIXED_TEXTS[code], headers=_unavailable_headers(error))
    if not isinstance(error, Refused):
        return HttpError(status, code, FIXED_TEXTS[code])
    return HttpError(status, code, error.message, error.details, _headers(error))


def _unavailable_headers(error: errors.Unavailable) -> dict[str, str]:
    seconds = error.details.get("retryAfterSeconds")
    return {"Retry-After": str(seconds)} if seconds is not None else retry_header(type(error))


def retry_header(kind: type[errors.Unavailable] = errors.Unavailable) -> dict[str, str]:
    """When to repeat a request that failed for this reason."""
    seconds = next(RETRY_SECONDS[base] for base in kind.__mro__ if base in RETRY_SECONDS)
    return {"Retry-After": str(seconds)}


def _status_and_code(error: LtzdError) -> tuple[int, str]:
    if isinstance(error, RequestError):
        return error.status, error.code
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def _headers(error: Refused) -> dict[str, str]:
    if isinstance(error, errors.SignatureRefused):
        return {"WWW-Authenticate": "LTZ-HMAC"}
    if isinstance(error, errors.Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    seconds = error.details.get("cooldownSeconds", error.details.get("retryAfterSeconds"))
    if not isinstance(seconds, int):
        return {}  # the limit does not end with time: a maximum, for example
    headers = {"Retry-After": str(seconds)}
    return (
        headers | _rate_headers(error, seconds)
        if isinstance(error, errors.RateLimited)
        else headers
    )


def _rate_headers(error: errors.RateLimited, seconds: int) -> dict[str, str]:
    """Spec 8: the reset is in Unix seconds, the same in each response of the window if known."""
    reset_at = time.time() + seconds if error.reset_at is None else error.reset_at
    return {
        "X-RateLimit-Limit": str(error.details.get("limit")),
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": str(math.ceil(reset_at)),
    }


def _protocol_error(error: SanicException) -> HttpError:
    is_known = error.status_code in PROTOCOL_ERRORS or error.status_code == 500
    status = error.status_code if is_known else 400
    if status == 500:
        return HttpError(500, "INTERNAL_ERROR", FIXED_TEXTS["INTERNAL_ERROR"])
    code, text = PROTOCOL_ERRORS.get(status, ("BAD_REQUEST", "Malformed request"))
    return HttpError(status, code, text, headers=retry_header() if status == 503 else {})


def report(error: BaseException) -> HttpError:
    """Translate the error and count it. An error that the caller did not cause is logged."""
    translated = http_error_of(error)
    telemetry.HTTP_REFUSALS.labels(translated.code.lower()).inc()
    if translated.status >= 500:
        _log(error, translated)
    return translated


class ErrorResponder(ErrorHandler):
    """Sanic's hook for every exception, its own included. Must not raise.

    `formats` pairs a path prefix with the format of the paths below it; the longest prefix wins,
    and `default` serves all other paths. `always_allowed` are methods that every path answers, so
    that every Allow header names them.
    """

    def __init__(
        self,
        default: ErrorFormat,
        formats: Sequence[tuple[str, ErrorFormat]] = (),
        always_allowed: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self._default = default
        self._formats = sorted(formats, key=lambda entry: -len(entry[0]))
        self._always_allowed = always_allowed

    def response(self, request: Request, exception: BaseException) -> Reply:
        error, path = report(_named(exception, request)), path_of(request)
        if isinstance(exception, MethodNotAllowed):
            error = replace(error, headers={"Allow": self._allowed(exception)})
        return self.reply(error, path)

    def reply(self, error: HttpError, path: str) -> Reply:
        """The error in the format of this path."""
        reply = self._format_of(path).reply(error, path)
        return json_reply(reply.body, reply.status, dict(reply.headers))

    def _format_of(self, path: str) -> ErrorFormat:
        for prefix, error_format in self._formats:
            if path == prefix or path.startswith(prefix + "/"):
                return error_format
        return self._default

    def _allowed(self, error: MethodNotAllowed) -> str:
        methods = {method.strip() for method in error.headers.get("Allow", "").split(",")}
        return ", ".join(sorted((methods - {""}) | self._always_allowed))


def _named(error: BaseException, request: Request) -> BaseException:
    """Sanic's refusal of a request that it cannot read, as the error that names the fault."""
    if not isinstance(error, BadRequest | PayloadTooLarge):
        return error
    received = _received_head(request)
    if isinstance(error, BadRequest):
        fault = fault_in(str(error), received)
        return error if fault is None else RequestMalformed(fault)
    if not is_stand_in(request):
        return error  # the head was read: the body is too large
    return UrlTooLong() if is_url_too_long(received) else HeadersTooLarge()


def _received_head(request: Request) -> bytes:
    """The received part of a head that Sanic refused, else the request's head."""
    if not is_stand_in(request):
        return request.head
    stream: Any = request.stream
    return bytes(stream.recv_buffer)


def is_stand_in(request: Request) -> bool:
    """Whether Sanic made the request itself, for a head that it could not parse.

    The method of such a request is NONE, which a client may send, too.
    """
    return request.method == "NONE" and not request.head


def path_of(request: Request) -> str:
    """The path, also of a request too broken for Sanic to parse its URL."""
    if is_stand_in(request):
        return _partial_path(request)
    path: str = request.path
    return path


def _partial_path(request: Request) -> str:
    """The path in the received part of a head that Sanic refused, for example for its size."""
    words = _received_head(request)[:512].split(b" ", 2)
    return _path_in(words[1]) if len(words) > 1 else "*"


def _path_in(target: bytes) -> str:
    return target.partition(b"?")[0].decode("ascii", "replace")


_lines = LineLimits()
"""By code."""


def _log(error: BaseException, translated: HttpError) -> None:
    # The gate says once that an overload has begun.
    if isinstance(error, errors.Overloaded | errors.TransactionFailed):
        return
    left_out = _lines.take(translated.code)
    if left_out is None:
        return
    if left_out:
        log.warning("http.lines_left_out", code=translated.code, lines=left_out)
    if isinstance(error, errors.Unavailable):
        log.warning("http.unavailable", code=translated.code, reason=error.message)
    elif translated.code == "INTERNAL_ERROR":
        log.error("http.failed", error=loggable(error), trace=traceback_of(error))
    else:
        log.info("http.server_error", code=translated.code)

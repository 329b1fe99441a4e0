"""How a surface describes its endpoints to the OpenAPI document.

A handler declares the errors it raises with `raises`. From that declaration an `Operation` derives
the error statuses, their descriptions, models, headers and examples: each error is translated and
formatted by the code that sends it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from pydantic import BaseModel

from ltzd.errors import LtzdError, Overloaded, Refused, ShareExceeded
from ltzd.http.errors import BodyTooLarge, ErrorFormat, http_error_of
from ltzd.http.openapi.error_causes import condition_of, default_example
from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT
from ltzd.rules.request_signatures import VALID_SECONDS

Handler = TypeVar("Handler", bound=Callable[..., Any])
Examples = Mapping[str, Mapping[str, object]]
"""Bodies, by a name that says what each is an example of."""

_declared: dict[Callable[..., Any], tuple[type[LtzdError], ...]] = {}


def raises(*errors: type[LtzdError]) -> Callable[[Handler], Handler]:
    """Declare the errors that a handler answers with. `Broken` stands for any internal error."""

    def declare(handler: Handler) -> Handler:
        _declared[handler] = errors
        return handler

    return declare


ADMISSION_ERRORS: tuple[type[LtzdError], ...] = (ShareExceeded, Overloaded)
"""The errors that the application raises before it calls the handler."""


def declared_errors(handler: Callable[..., Any]) -> tuple[type[LtzdError], ...]:
    return _declared.get(handler, ())


class Parameter(msgspec.Struct, frozen=True):
    """`place` is `path`, `query` or `header`."""

    name: str
    place: str
    schema: Mapping[str, object]
    required: bool = True
    description: str = ""


class Credential(msgspec.Struct, frozen=True):
    """A form of the Authorization header: a security scheme of the document, with this name.

    OpenAPI ignores a parameter of the name Authorization.
    """

    name: str
    scheme: str
    description: str
    required: bool = True


class ResponseHeader(msgspec.Struct, frozen=True):
    name: str
    description: str
    schema: Mapping[str, object]


AGE = ResponseHeader(
    "Age",
    "The seconds by which the answer may be old, if a standby of the database gave it (RFC 9111, "
    "5.1)",
    {"type": "integer", "minimum": 0},
)


class Response(msgspec.Struct, frozen=True):
    """The response with one status. `media_type` is that of a body that is not JSON.

    `model` is None for such a body, and for a response without a body.
    """

    description: str
    model: type[BaseModel] | None
    examples: Examples = msgspec.field(default_factory=dict)
    headers: tuple[ResponseHeader, ...] = ()
    media_type: str | None = None


INTEGER: Mapping[str, object] = {"type": "integer"}
TEXT: Mapping[str, object] = {"type": "string"}

USER_TOKEN = Credential(
    "bearer", "bearer", "An access or identity token (JWT) of the identity provider"
)

SIGNATURE_HEADERS: Mapping[str, tuple[str, str]] = {
    "X-LTZ-Brand-Id": ("^0x[0-9A-Fa-f]{40}$", "The brand that signs the request (LTZ-HMAC v1)"),
    "X-LTZ-Timestamp": ("^[0-9]{1,12}$", f"Unix seconds, at most {VALID_SECONDS} off"),
    "X-LTZ-Nonce": ("^[A-Za-z0-9_-]{16,64}$", "Valid for one request"),
    "X-LTZ-Signature": (
        "^v1=[0-9a-f]{64}(,v1=[0-9a-f]{64}){0,3}$",
        (
            "v1= and, in hex, the HMAC-SHA256 with the brand's security key of the lines v1, "
            "timestamp, nonce, method, request target and the body's SHA-256 in hex"
        ),
    ),
}
"""By name: the header's pattern and description."""


def signature_headers(*, required: bool, are_always_read: bool = True) -> tuple[Parameter, ...]:
    """The headers of LTZ-HMAC. They have no pattern where some requests may hold any text."""
    return tuple(
        Parameter(
            name,
            "header",
            {"type": "string", "pattern": pattern} if are_always_read else TEXT,
            required,
            description,
        )
        for name, (pattern, description) in SIGNATURE_HEADERS.items()
    )


IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    "header",
    {"type": "string", "minLength": 1, "maxLength": 255},
    required=False,
    description="Printable characters",
)

ERROR_HEADERS: Mapping[str, ResponseHeader] = {
    header.name: header
    for header in (
        ResponseHeader("Retry-After", "Seconds until the request may succeed", INTEGER),
        ResponseHeader("WWW-Authenticate", "The authentication scheme", TEXT),
        ResponseHeader("X-RateLimit-Limit", "Requests that the window allows", INTEGER),
        ResponseHeader("X-RateLimit-Remaining", "Requests left in the window", INTEGER),
        ResponseHeader("X-RateLimit-Reset", "When the window ends, in Unix seconds", INTEGER),
    )
}


class RateWindow(msgspec.Struct, frozen=True):
    """The X-RateLimit headers of an endpoint. `statuses` carry them; if it is None, all do."""

    counts: str
    statuses: frozenset[int] | None = None

    def headers(self, status: int) -> tuple[ResponseHeader, ...]:
        if self.statuses is not None and status not in self.statuses:
            return ()
        return (
            ResponseHeader("X-RateLimit-Limit", self.counts, INTEGER),
            ERROR_HEADERS["X-RateLimit-Remaining"],
            ERROR_HEADERS["X-RateLimit-Reset"],
        )


NO_WINDOW = RateWindow("", frozenset())


class Operation(msgspec.Struct, frozen=True, dict=True):
    """One endpoint. Its error responses follow from what `handler` declares.

    `errors` is the surface's format. `error_examples` replace the default example of the classes
    they belong to. `headers` are those of every response.
    """

    handler: Callable[..., Any]
    method: str
    path: str
    summary: str
    success: Mapping[int, Response]
    errors: ErrorFormat
    error_examples: Mapping[str, LtzdError] = msgspec.field(default_factory=dict)
    request: type[BaseModel] | None = None
    request_examples: Examples = msgspec.field(default_factory=dict)
    body_limit: int = EVENT_HANDLER_LIMIT
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[ResponseHeader, ...] = ()
    rate_window: RateWindow = NO_WINDOW
    credential: Credential | None = None
    may_be_busy: bool = True
    """Whether a busy process refuses requests to the endpoint."""

    @cached_property
    def responses(self) -> Mapping[int, Response]:
        """Every response by its status: successes first, then errors in order."""
        errors = _error_responses(self._error_examples(), self.errors, self.path)
        return {
            status: replace(
                response,
                headers=_merged(self.headers, self.rate_window.headers(status), response.headers),
            )
            for status, response in {**self.success, **errors}.items()
        }

    @cached_property
    def raised(self) -> tuple[type[LtzdError], ...]:
        """The errors that the handler declares, and of a GET also that its body is too large."""
        declared = declared_errors(self.handler)
        if self.method != "GET" or BodyTooLarge in declared:
            return declared
        return (*declared, BodyTooLarge)

    def _error_examples(self) -> list[tuple[str, LtzdError]]:
        declared = self.raised
        if self.may_be_busy:
            declared += ADMISSION_ERRORS
        for name, error in self.error_examples.items():
            if type(error) not in declared:
                raise ValueError(f"{self.path}: the handler does not declare the error of {name!r}")
        return [named for kind in declared for named in self._examples_of(kind)]

    def _examples_of(self, kind: type[LtzdError]) -> list[tuple[str, LtzdError]]:
        own = [named for named in self.error_examples.items() if type(named[1]) is kind]
        if own:
            return own
        error = default_example(kind, self.body_limit)
        return [(http_error_of(error).code.lower().replace("_", " "), error)]


def error_of(call: Callable[[], object]) -> Refused:
    """The error that the call raises: an example that is true as long as the code is."""
    try:
        call()
    except Refused as error:
        return error
    raise AssertionError("the example must be refused")


def _error_responses(
    examples: Iterable[tuple[str, LtzdError]], errors: ErrorFormat, path: str
) -> Mapping[int, Response]:
    conditions: dict[int, dict[str, None]] = {}
    bodies: dict[int, dict[str, Mapping[str, object]]] = {}
    headers: dict[int, dict[str, None]] = {}
    for name, error in examples:
        reply = errors.reply(http_error_of(error), path)
        if name in bodies.get(reply.status, {}):
            raise ValueError(f"{path}: two examples of {reply.status} have the name {name!r}")
        conditions.setdefault(reply.status, {})[condition_of(error)] = None
        bodies.setdefault(reply.status, {})[name] = reply.body
        headers.setdefault(reply.status, {}).update(dict.fromkeys(reply.headers))
    return {
        status: Response(
            _sentence(conditions[status]),
            errors.model_of(status),
            bodies[status],
            tuple(ERROR_HEADERS[header] for header in headers[status]),
        )
        for status in sorted(conditions)
    }


def _sentence(conditions: Iterable[str]) -> str:
    text = "; ".join(conditions)
    return text[:1].upper() + text[1:]


def _merged(*groups: tuple[ResponseHeader, ...]) -> tuple[ResponseHeader, ...]:
    """One header of each name: the first."""
    return tuple(_first_of_each_name(header for group in groups for header in group))


def _first_of_each_name(headers: Iterable[ResponseHeader]) -> Iterator[ResponseHeader]:
    names = set()
    for header in headers:
        if header.name not in names:
            names.add(header.name)
            yield header

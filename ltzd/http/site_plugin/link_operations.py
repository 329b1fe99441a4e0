"""How /site-links is described to the OpenAPI document, each of its answers with an example.

Examples are made by the code that answers.
"""

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from pydantic import BaseModel

from ltzd.actions.site_plugin.links import LinkCode
from ltzd.errors import (
    DatabaseUnavailable,
    IdentityUnavailable,
    InvalidFields,
    LtzdError,
    MissingFields,
    NotFound,
    RateLimited,
    Unauthorized,
    ValidationFailed,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable, answer_of, relayer_envelope
from ltzd.http.openapi.operations import AnswerHeader, Examples, Operation, Parameter
from ltzd.http.relayer.models import RelayRefusal
from ltzd.http.site_plugin.link_models import LinkCodeAnswer, LinksAnswer, NewLink
from ltzd.http.site_plugin.links import BODY_LIMIT, PATH
from ltzd.rules.site_plugin.links import CODE_LIFE, LINK_LIFE
from ltzd.store.site_plugin.links import Link
from ltzd.values import address_of

_Answers: TypeAlias = dict[int, tuple[str, type[BaseModel]]]

_HOST = "site.example"
_NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
_CODE = LinkCode("7KQ2M9XA", _HOST, 500, _NOW + CODE_LIFE)
_LINK = Link(
    brand_id=address_of("0x" + "ab" * 20),
    host=_HOST,
    username="ada",
    wallet=address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"),
    daily_allowance=500,
    linked_at=_NOW + timedelta(minutes=2),
    expires_at=_NOW + timedelta(minutes=2) + LINK_LIFE,
)

_ALWAYS: dict[str, LtzdError] = {
    "no token": Unauthorized("Authorization must be given once, as Bearer and a token"),
    "foreign origin": ValidationFailed("Origin not allowed"),
    "too many requests": RateLimited(
        "Rate limit exceeded",
        message="An address may ask 100 times a minute; try again in 42 seconds",
        limit=100,
        retryAfterSeconds=42,
    ),
    "identity provider away": IdentityUnavailable(""),
    "internal error": LtzdError(""),
    "database away": DatabaseUnavailable(""),
}
_OF_POST: dict[str, LtzdError] = {
    "missing host": MissingFields(["host"]),
    "invalid fields": InvalidFields(["dailyAllowance: must be at least 0"]),
    "unreadable body": BodyUnreadable("Content-Type must be application/json"),
    "no wallet": ValidationFailed("The token's user has no wallet yet"),
    "no such site": NotFound("No brand has a site at this host"),
    "body too large": BodyTooLarge(
        f"Request body is larger than {BODY_LIMIT} bytes", maxBytes=BODY_LIMIT
    ),
    "too many open codes": RateLimited(
        "Too many open codes",
        message="You have 5 codes that nobody has used; try again in 300 seconds",
        limit=5,
        retryAfterSeconds=300,
    ),
}
_OF_DELETE: dict[str, LtzdError] = {"no link": NotFound("You have no link at this host")}

_REFUSED = {
    400: "Unreadable body, missing or invalid fields",
    401: "No token, or one that is invalid or expired",
    403: "A page of a foreign origin asks, or the token's user has no wallet",
    404: "No brand has a site at this host, or the user has no link there",
    413: f"Body over {BODY_LIMIT:,} bytes",
    429: "Too many requests of the address, or codes of the user that nobody has used",
    500: "Identity provider unavailable, or an internal error",
    503: "Database unavailable",
}


def _examples(faults: dict[str, LtzdError]) -> dict[int, dict[str, dict[str, object]]]:
    by_status: dict[int, dict[str, dict[str, object]]] = {}
    for name, error in {**_ALWAYS, **faults}.items():
        answer = answer_of(error)
        by_status.setdefault(answer.status, {})[name] = relayer_envelope(answer)
    return by_status


_HEADERS = (
    AnswerHeader(
        "X-RateLimit-Limit", "How many requests of the address a minute", {"type": "integer"}
    ),
    AnswerHeader("X-RateLimit-Remaining", "How many are left", {"type": "integer"}),
    AnswerHeader("X-RateLimit-Reset", "When the window ends, in Unix seconds", {"type": "integer"}),
    AnswerHeader("Retry-After", "Seconds to wait", {"type": "integer"}, frozenset({429})),
    AnswerHeader("WWW-Authenticate", "Bearer", {"type": "string"}, frozenset({401})),
)


def _refusals(shown: dict[int, dict[str, dict[str, object]]]) -> _Answers:
    return {status: (_REFUSED[status], RelayRefusal) for status in sorted(shown)}


_POST_SHOWN, _GET_SHOWN, _DELETE_SHOWN = map(_examples, (_OF_POST, {}, _OF_DELETE))
_GOOD_POST: dict[int, Examples] = {201: {"a code": LinkCodeAnswer.body(_CODE)}}
_GOOD_GET: dict[int, Examples] = {200: {"a link": LinksAnswer.body([_LINK])}}

OPERATIONS = (
    Operation(
        "POST",
        PATH,
        "A code with which a member of a brand's site is linked with the user's wallet",
        request=NewLink,
        request_examples={"a site": {"host": _HOST, "dailyAllowance": 500}},
        answers={201: ("To be typed at the site", LinkCodeAnswer), **_refusals(_POST_SHOWN)},
        examples={**_GOOD_POST, **_POST_SHOWN},
        headers=_HEADERS,
        needs_token=True,
    ),
    Operation(
        "GET",
        PATH,
        "Which members of brands' sites are linked with the user's wallets",
        answers={200: ("The links that last", LinksAnswer), **_refusals(_GET_SHOWN)},
        examples={**_GOOD_GET, **_GET_SHOWN},
        headers=_HEADERS,
        needs_token=True,
    ),
    Operation(
        "DELETE",
        f"{PATH}/{{host}}",
        "End the user's links at a host, and the codes for it that nobody has used",
        parameters=(Parameter("host", "path", {"type": "string", "maxLength": 253}),),
        bodiless={204: "They are ended"},
        answers=_refusals(_DELETE_SHOWN),
        examples={**_DELETE_SHOWN},
        headers=_HEADERS,
        needs_token=True,
    ),
)

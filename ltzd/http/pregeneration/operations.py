"""How pregeneration is described to the OpenAPI document, each answer with an example.

Examples are made by the code that answers.
"""

from ltzd.actions.pregeneration import PER_DAY, PER_MINUTE, invalid_credentials, too_many
from ltzd.errors import (
    BrandUnknown,
    DatabaseUnavailable,
    IdentityUnavailable,
    InvalidFields,
    LtzdError,
    MissingFields,
    SignatureRefused,
    Unavailable,
)
from ltzd.http.errors import (
    PREGENERATION,
    BodyTooLarge,
    BodyUnreadable,
    ProviderUnknown,
    answer_of,
    pregeneration_envelope,
    status_of,
)
from ltzd.http.openapi.operations import AnswerHeader, Operation, Parameter
from ltzd.http.pregeneration.handlers import too_many as too_many_of_address
from ltzd.http.pregeneration.models import (
    BadRequestRefusal,
    ExplainedRefusal,
    PlainRefusal,
    PregeneratedAnswer,
    PregenerationOrder,
)
from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount
from ltzd.rules.oauth.ids import OAuthIdInvalid, check_id
from ltzd.store.users.pregenerations import AccountWallet, RecordedPregeneration
from ltzd.values import address_of

_ACCOUNT = OAuthAccount("discord", "175928847299117063", "ada.l")
_KEPT = AccountWallet(
    "did:privy:cm3np4u9j001rc8b73seqmqqk",
    address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"),
)
_ORDER = {
    "brand_id": "0x" + "ab" * 20,
    "oauth_provider": _ACCOUNT.provider,
    "oauth_user_id": _ACCOUNT.user_id,
    "oauth_username": _ACCOUNT.username,
    "metadata": {"campaign": "spring"},
}
_GOOGLE_ORDER = {
    "brand_id": "0x" + "ab" * 20,
    "oauth_provider": "google",
    "oauth_user_id": "108177034651932284561",
    "metadata": {"email": "ada@example.com", "name": "Ada Lovelace"},
}


def _malformed_id() -> OAuthIdInvalid:
    try:
        check_id("discord", "12345")
    except OAuthIdInvalid as refusal:
        return refusal
    raise AssertionError("five digits are no Discord id")


def _refusals(**examples: LtzdError) -> dict[int, dict[str, dict[str, object]]]:
    """By status; underscores in their names are spaces."""
    by_status: dict[int, dict[str, dict[str, object]]] = {}
    for name, error in examples.items():
        answer = answer_of(error)
        of_status = by_status.setdefault(status_of(PREGENERATION, answer), {})
        of_status[name.replace("_", " ")] = pregeneration_envelope(answer)
    return by_status


_EXAMPLES = {
    200: {
        "created": PregeneratedAnswer.body(
            _ACCOUNT, RecordedPregeneration(_KEPT, created_new=True)
        ),
        "found": PregeneratedAnswer.body(_ACCOUNT, RecordedPregeneration(_KEPT, created_new=False)),
    },
    **_refusals(
        missing_fields=MissingFields(["oauth_user_id"]),
        invalid_fields=InvalidFields(["oauth_username: must be a string"]),
        unknown_provider=ProviderUnknown("Invalid OAuth provider", valid_providers=list(PROVIDERS)),
        malformed_id=_malformed_id(),
        refused_account=invalid_credentials(_ACCOUNT, "Discord knows no account with this id"),
        unreadable_body=BodyUnreadable("Content-Type must be application/json"),
        wrong_signature=SignatureRefused("The request is not signed by this brand"),
        unknown_brand=BrandUnknown("Unknown brand"),
        body_too_large=BodyTooLarge(f"Request body is larger than {EVENT_HANDLER_LIMIT} bytes"),
        address_limited=too_many_of_address(42),
        minute_used_up=too_many(PER_MINUTE, 42),
        day_used_up=too_many(PER_DAY, 4_200),
        identity_provider_away=IdentityUnavailable(""),
        account_look_up_away=Unavailable(""),
        database_away=DatabaseUnavailable(""),
        internal_error=LtzdError(""),
    ),
}

_WINDOW = tuple(
    AnswerHeader(name, description, {"type": "integer"}, frozenset({200, 429}))
    for name, description in (
        ("X-RateLimit-Limit", "Requests of the brand in a minute, or of whatever limit is used up"),
        ("X-RateLimit-Remaining", "How many of them are left"),
        ("X-RateLimit-Reset", "Unix seconds when the window ends"),
    )
)
_WAIT = AnswerHeader(
    "Retry-After", "Seconds until the window ends", {"type": "integer"}, frozenset({429})
)
_CHALLENGE = AnswerHeader("WWW-Authenticate", "LTZ-HMAC", {"type": "string"}, frozenset({401}))
_SIGNATURE = tuple(
    Parameter(name, "header", {"type": "string"}, required=False)
    for name in ("X-LTZ-Brand-Id", "X-LTZ-Timestamp", "X-LTZ-Nonce", "X-LTZ-Signature")
)
"""Optional: what a brand has signed counts apart."""

OPERATIONS = (
    Operation(
        "POST",
        PREGENERATION,
        "Get or make the wallet of an account at an OAuth provider before its owner logs in",
        request=PregenerationOrder,
        parameters=_SIGNATURE,
        request_examples={"a Discord account": _ORDER, "a Google account": _GOOGLE_ORDER},
        answers={
            200: ("The account's wallet; the same whenever it is asked", PregeneratedAnswer),
            400: (
                "Unreadable body, missing or invalid fields, or an account that gets no wallet",
                BadRequestRefusal,
            ),
            401: ("Signed, but not rightly, too long ago, or with a used nonce", PlainRefusal),
            403: ("Unknown brand", PlainRefusal),
            413: (f"Body over {EVENT_HANDLER_LIMIT:,} bytes", PlainRefusal),
            429: (
                "Too many requests of the address a minute, or of the brand a minute or a day",
                PlainRefusal,
            ),
            500: (
                "A provider or the database is unavailable, or an internal error: ask again",
                ExplainedRefusal,
            ),
        },
        examples=_EXAMPLES,
        headers=(*_WINDOW, _WAIT, _CHALLENGE),
    ),
)

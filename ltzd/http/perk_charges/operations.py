"""How the perk charge endpoints are described to the OpenAPI document, each answer with an example.

Examples are made by the code that answers.
"""

from datetime import UTC, datetime
from uuid import UUID

from ltzd.actions.perk_charges import IndexedHeight, RedeemedCharges
from ltzd.errors import (
    CollectionNotFound,
    DatabaseUnavailable,
    HolderChanged,
    IdempotencyKeyReused,
    InvalidFields,
    LtzdError,
    MissingFields,
    NoChargesRemaining,
    NodeUnavailable,
    RateLimited,
    RelayPending,
    SignatureRefused,
    TokenNotFound,
    TransactionFailed,
    Unavailable,
    ValidationFailed,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable, answer_of, relayer_envelope
from ltzd.http.openapi.operations import (
    WAIT_FOR_WINDOW,
    WAIT_TO_SEND,
    AnswerHeader,
    Examples,
    Operation,
    Parameter,
)
from ltzd.http.perk_charges.handlers import BODY_LIMIT, HOLDERS, REDEEM, STATUS
from ltzd.http.perk_charges.models import (
    HoldersQuery,
    PerkHoldersAnswer,
    PerkRedemption,
    PerkRefusal,
    PerkStatusAnswer,
    RedeemedAnswer,
)
from ltzd.rules.perk_charges import SERIAL_BITS, Token
from ltzd.rules.relayer.gas_budgets import total_exhausted
from ltzd.store.indexer.tokens import TokenPage
from ltzd.store.perk_charges import ChargeRedemption
from ltzd.values import Hash32, address_of, checksummed

_HOLDER = address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed")
_ID = UUID("3f0a0f5e-58b1-4a54-9c52-1d9b2f0c7a11")
_COLLECTION = 7
_TOKEN = (_COLLECTION << SERIAL_BITS) + 12
_CLAIMED, _USED = (datetime(2026, 3, day, 9, 30, tzinfo=UTC) for day in (1, 14))


def _token(used: int, number: int = _TOKEN) -> Token:
    return Token(number, _COLLECTION, _HOLDER, 10, used, _CLAIMED, _USED if used else None, 4_711)


def _redeemed(*, is_mined: bool, already: bool = False) -> dict[str, object]:
    redemption = ChargeRedemption(
        id=_ID,
        relay_id=1,
        collection_id=_COLLECTION,
        token_id=_TOKEN,
        holder=_HOLDER,
        amount=1,
        remaining_before=8,
        max_charges=10,
        fingerprint=b"",
        transaction_hash=Hash32(bytes.fromhex("9f" * 32)),
        succeeded=True if is_mined else None,
        mined_at=_USED if is_mined else None,
    )
    return RedeemedAnswer.body(RedeemedCharges(redemption, already))


def _page(limit: int) -> dict[str, object]:
    query = HoldersQuery.from_text(f"collectionId={_COLLECTION}&limit={limit}")
    return PerkHoldersAnswer.body(query, TokenPage([_token(3), _token(0, _TOKEN + 1)], 2, None))


def _refusals(**examples: LtzdError) -> dict[int, dict[str, dict[str, object]]]:
    """By status; underscores in their names are spaces."""
    by_status: dict[int, dict[str, dict[str, object]]] = {}
    for name, error in examples.items():
        answer = answer_of(error)
        of_status = by_status.setdefault(answer.status, {})
        of_status[name.replace("_", " ")] = relayer_envelope(answer)
    return by_status


_TEXT_ID = str(_TOKEN)
_NO_TOKEN = TokenNotFound(
    "Token not found in the collection", collectionId=_COLLECTION, tokenId=_TEXT_ID
)

_ALWAYS = _refusals(
    missing_fields=MissingFields(["collectionId"]),
    invalid_fields=InvalidFields(["collectionId: must be a whole number from 1 to below 2^256"]),
    not_signed=SignatureRefused("The request is not signed: X-LTZ headers are missing"),
    wrong_signature=SignatureRefused("The request is not signed by this brand"),
    used_nonce=SignatureRefused("X-LTZ-Nonce has been used"),
    other_brand=ValidationFailed("The collection is another brand's", collectionId=_COLLECTION),
    unknown_collection=CollectionNotFound("Collection not found", collectionId=_COLLECTION),
    body_too_large=BodyTooLarge(
        f"Request body is larger than {BODY_LIMIT} bytes", maxBytes=BODY_LIMIT
    ),
    too_many_unsigned=RateLimited(
        "Rate limit exceeded",
        message="An address may ask 100 times a minute; try again in 42 seconds",
        limit=100,
        retryAfterSeconds=42,
    ),
    internal_error=LtzdError(""),
    database_away=DatabaseUnavailable(""),
)
_OF_REDEEM = _refusals(
    gas_budget_spent=total_exhausted(3_600),
    unreadable_body=BodyUnreadable("Content-Type must be application/json"),
    unknown_token=_NO_TOKEN,
    no_charges_remaining=NoChargesRemaining(
        "The token has not enough charges left", tokenId=_TEXT_ID, chargesRemaining=0, requested=1
    ),
    holder_changed=HolderChanged(
        "The token is no longer held by userAddress", tokenId=_TEXT_ID, holder=checksummed(_HOLDER)
    ),
    idempotency_key_reused=IdempotencyKeyReused(
        "This idempotency key came with another request before"
    ),
    failed_on_chain=TransactionFailed("Transaction failed: Paused", reason="Paused"),
    node_away=NodeUnavailable(""),
    not_sent_in_time=Unavailable(""),
    no_node_has_taken_it=RelayPending(""),
)
_NOT_REDEEMED = (
    "Nothing was redeemed, and the same request may succeed later; or signed, and no node has "
    "taken it yet (`RELAY_PENDING`): the same idempotency key joins it"
)
_OF_STATUS = _refusals(unknown_token=_NO_TOKEN)


def _examples(
    own: dict[int, dict[str, dict[str, object]]], answers: dict[int, Examples]
) -> dict[int, Examples]:
    return {
        status: {**answers.get(status, {}), **own.get(status, {}), **_ALWAYS.get(status, {})}
        for status in sorted({*own, *_ALWAYS, *answers})
    }


_SIGNATURE = tuple(
    Parameter(name, "header", {"type": "string", "pattern": pattern})
    for name, pattern in (
        ("X-LTZ-Brand-Id", "^0x[0-9A-Fa-f]{40}$"),
        ("X-LTZ-Timestamp", "^[0-9]{1,12}$"),
        ("X-LTZ-Nonce", "^[A-Za-z0-9_-]{16,64}$"),
        ("X-LTZ-Signature", "^v1=[0-9a-f]{64}(,v1=[0-9a-f]{64}){0,3}$"),
    )
)
_HEADERS = (
    AnswerHeader("WWW-Authenticate", "LTZ-HMAC", {"type": "string"}, frozenset({401})),
    *(
        AnswerHeader(name, description, {"type": "integer"}, frozenset({401, 429}))
        for name, description in (
            ("X-RateLimit-Limit", "Requests of an address a minute that are not signed rightly"),
            ("X-RateLimit-Remaining", "How many of them are left"),
            ("X-RateLimit-Reset", "When the window ends, in Unix seconds"),
        )
    ),
)
_COLLECTION_ID = Parameter("collectionId", "query", {"type": "string", "pattern": "^[0-9]{1,78}$"})
_TOKEN_ID = Parameter("tokenId", "query", {"type": "string", "pattern": "^[0-9]{1,78}$"})
_LIMIT = Parameter(
    "limit",
    "query",
    {"type": "integer", "minimum": 1, "maximum": 100, "default": 50},
    required=False,
)
_CURSOR = Parameter(
    "cursor", "query", {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,44}$"}, required=False
)
_BODY_OVER = (f"Body over {BODY_LIMIT:,} bytes", PerkRefusal)
_NOT_SIGNED = ("Not signed by the brand, too long ago, or with a nonce that was used", PerkRefusal)
_NOT_ITS_OWN = ("Another brand's collection", PerkRefusal)
_READ_REFUSALS = {
    400: ("Missing or invalid fields", PerkRefusal),
    401: _NOT_SIGNED,
    403: _NOT_ITS_OWN,
    404: ("Unknown collection or token", PerkRefusal),
    413: _BODY_OVER,
    429: ("Too many requests of the address that are not signed rightly", PerkRefusal),
    500: ("An internal error", PerkRefusal),
    503: ("Database unavailable", PerkRefusal),
}

OPERATIONS = (
    Operation(
        "POST",
        REDEEM,
        "Redeem charges of a token of the brand's, once however often it is asked with one key",
        request=PerkRedemption,
        request_examples={
            "one charge": {"collectionId": _COLLECTION, "tokenId": _TEXT_ID},
            "whatever may be said": {
                "collectionId": _COLLECTION,
                "tokenId": _TEXT_ID,
                "amount": 2,
                "userAddress": checksummed(_HOLDER),
                "reference": "receipt 4711",
                "idempotencyKey": "till-3-receipt-4711",
            },
        },
        parameters=_SIGNATURE,
        answers={
            200: ("Redeemed", RedeemedAnswer),
            202: (
                "Published, but not mined within a minute; the same idempotency key tells more",
                RedeemedAnswer,
            ),
            **_READ_REFUSALS,
            400: ("Unreadable body, missing or invalid fields", PerkRefusal),
            403: ("Another brand's collection, or the day's gas budget is spent", PerkRefusal),
            409: ("No charges left, another holder, or a key of another body", PerkRefusal),
            500: ("It reverts or failed on chain, or an internal error", PerkRefusal),
            503: (_NOT_REDEEMED, PerkRefusal),
        },
        examples=_examples(
            _OF_REDEEM,
            {
                200: {
                    "redeemed": _redeemed(is_mined=True),
                    "repeated": _redeemed(is_mined=True, already=True),
                },
                202: {"pending": _redeemed(is_mined=False)},
            },
        ),
        headers=(*_HEADERS, WAIT_TO_SEND),
    ),
    Operation(
        "GET",
        STATUS,
        "What is left of a token's charges, and who holds it",
        parameters=(_COLLECTION_ID, _TOKEN_ID, *_SIGNATURE),
        answers={200: ("The token", PerkStatusAnswer), **_READ_REFUSALS},
        examples=_examples(
            _OF_STATUS,
            {
                200: {
                    "active": PerkStatusAnswer.body(_token(3), IndexedHeight(4_720, 4_600)),
                    "exhausted": PerkStatusAnswer.body(_token(10), IndexedHeight(4_900, 4_800)),
                }
            },
        ),
        headers=(*_HEADERS, WAIT_FOR_WINDOW),
    ),
    Operation(
        "GET",
        HOLDERS,
        "A collection's tokens and their holders, page by page",
        parameters=(_COLLECTION_ID, _LIMIT, _CURSOR, *_SIGNATURE),
        answers={
            200: ("A page", PerkHoldersAnswer),
            **_READ_REFUSALS,
            404: ("Unknown collection", PerkRefusal),
        },
        examples=_examples({}, {200: {"a page": _page(1), "the last page": _page(2)}}),
        headers=(*_HEADERS, WAIT_FOR_WINDOW),
    ),
)

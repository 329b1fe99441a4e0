"""The perk charge endpoints as the OpenAPI document describes them."""

from datetime import UTC, datetime
from uuid import UUID

from ltzd.actions.perk_charges import IndexedHeight, RedeemedCharges
from ltzd.errors import (
    InvalidFields,
    LtzdError,
    MissingFields,
    SignatureRefused,
    TokenNotFound,
    Unavailable,
    ValidationFailed,
)
from ltzd.http.openapi.operations import (
    AGE,
    Operation,
    Parameter,
    RateWindow,
    Response,
    signature_headers,
)
from ltzd.http.perk_charges.handlers import (
    BODY_LIMIT,
    HOLDERS,
    REDEEM,
    STATUS,
    PerkChargeHandlers,
)
from ltzd.http.perk_charges.models import (
    CheckPerkStatusResponse,
    ListPerkHoldersQuery,
    ListPerkHoldersResponse,
    RedeemPerkBody,
    RedeemPerkResponse,
)
from ltzd.http.relayer.address_limit import too_many_requests
from ltzd.http.relayer.errors import ERRORS
from ltzd.http.requests.rate_limits import PER_CLIENT
from ltzd.rules.perk_charges import SERIAL_BITS, Token
from ltzd.rules.relayer.gas_budgets import brand_exhausted, total_exhausted
from ltzd.rules.request_signatures import NONCE_WAS_USED
from ltzd.store.indexer.tokens import TokenPage
from ltzd.store.perk_charges import ChargeRedemption
from ltzd.values import Hash32, address_of, checksummed

_HOLDER = address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed")
_ID = UUID("3f0a0f5e-58b1-4a54-9c52-1d9b2f0c7a11")
_COLLECTION = 7
_TOKEN = (_COLLECTION << SERIAL_BITS) + 12
_CLAIMED, _USED = (datetime(2026, 3, day, 9, 30, tzinfo=UTC) for day in (1, 14))


def _token_example(used: int, number: int = _TOKEN) -> Token:
    return Token(number, _COLLECTION, _HOLDER, 10, used, _CLAIMED, _USED if used else None, 4_711)


def _redemption_example(*, is_mined: bool, already_processed: bool = False) -> dict[str, object]:
    redemption = ChargeRedemption(
        id=_ID,
        collection_id=_COLLECTION,
        token_id=_TOKEN,
        holder=_HOLDER,
        amount=1,
        remaining_before=8,
        max_charges=10,
        transaction_hash=Hash32(bytes.fromhex("9f" * 32)),
        succeeded=True if is_mined else None,
        mined_at=_USED if is_mined else None,
    )
    return RedeemPerkResponse.body(RedeemedCharges(redemption, already_processed))


def _page_example(limit: int) -> dict[str, object]:
    query = ListPerkHoldersQuery.from_text(f"collectionId={_COLLECTION}&limit={limit}")
    return ListPerkHoldersResponse.body(
        query, TokenPage([_token_example(3), _token_example(0, _TOKEN + 1)], 2, None)
    )


_TEXT_ID = str(_TOKEN)
_NO_TOKEN = TokenNotFound(
    "Token not found in the collection", collectionId=_COLLECTION, tokenId=_TEXT_ID
)
_READ_EXAMPLES: dict[str, LtzdError] = {
    "missing fields": MissingFields(["collectionId"]),
    "invalid fields": InvalidFields(["collectionId: must be a whole number from 1 to below 2^256"]),
    "not signed": SignatureRefused("The request is not signed: X-LTZ headers are missing"),
    "wrong signature": SignatureRefused("The request is not signed by this brand"),
    "used nonce": SignatureRefused(NONCE_WAS_USED),
    "another brand's collection": ValidationFailed(
        "The collection belongs to another brand", collectionId=_COLLECTION
    ),
    "too many unsigned requests": too_many_requests(PER_CLIENT.relayer, 42),
}

_SIGNATURE = signature_headers(required=True)
_WINDOW = RateWindow(
    "Requests of an address a minute without a correct signature", frozenset({401, 413, 429})
)
_COLLECTION_ID = Parameter(
    "collectionId",
    "query",
    {"type": "string", "pattern": "^0*[1-9][0-9]*$", "maxLength": 78},
    description="Below 2^256",
)
_TOKEN_ID = Parameter(
    "tokenId",
    "query",
    {"type": "string", "pattern": "^[0-9]{1,78}$"},
    description="Below 2^256",
)
_LIMIT = Parameter(
    "limit",
    "query",
    {"type": "integer", "minimum": 1, "maximum": 100, "default": 50},
    required=False,
)
_CURSOR = Parameter(
    "cursor",
    "query",
    {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,44}$"},
    required=False,
    description="The nextCursor of the page before",
)

OPERATIONS = (
    Operation(
        PerkChargeHandlers.redeem,
        "POST",
        REDEEM,
        "Redeem charges of a token of the brand's. Requests with one idempotency key redeem once",
        request=RedeemPerkBody,
        request_examples={
            "one charge": {"collectionId": _COLLECTION, "tokenId": _TEXT_ID},
            "every field": {
                "collectionId": _COLLECTION,
                "tokenId": _TEXT_ID,
                "amount": 2,
                "userAddress": checksummed(_HOLDER),
                "reference": "receipt 4711",
                "idempotencyKey": "till-3-receipt-4711",
            },
        },
        parameters=_SIGNATURE,
        success={
            200: Response(
                "Redeemed",
                RedeemPerkResponse,
                {
                    "redeemed": _redemption_example(is_mined=True),
                    "repeated": _redemption_example(is_mined=True, already_processed=True),
                },
            ),
            202: Response(
                "Published, but not mined within a minute: repeat the request with the same "
                "idempotency key for the outcome",
                RedeemPerkResponse,
                {"pending": _redemption_example(is_mined=False)},
            ),
        },
        errors=ERRORS,
        error_examples={
            **_READ_EXAMPLES,
            "total gas budget spent": total_exhausted(3_600),
            "the brand's gas budget spent": brand_exhausted(3_600),
            "unknown token": _NO_TOKEN,
            "not sent in time": Unavailable(""),
        },
        body_limit=BODY_LIMIT,
        rate_window=_WINDOW,
    ),
    Operation(
        PerkChargeHandlers.status,
        "GET",
        STATUS,
        "Read the charges and the holder of a token",
        parameters=(_COLLECTION_ID, _TOKEN_ID, *_SIGNATURE),
        success={
            200: Response(
                "The token",
                CheckPerkStatusResponse,
                {
                    "active": CheckPerkStatusResponse.body(
                        _token_example(3), IndexedHeight(4_720, 4_600)
                    ),
                    "exhausted": CheckPerkStatusResponse.body(
                        _token_example(10), IndexedHeight(4_900, 4_800)
                    ),
                },
            ),
        },
        errors=ERRORS,
        error_examples={**_READ_EXAMPLES, "unknown token": _NO_TOKEN},
        body_limit=BODY_LIMIT,
        rate_window=_WINDOW,
    ),
    Operation(
        PerkChargeHandlers.holders,
        "GET",
        HOLDERS,
        "List a collection's tokens and their holders, in pages",
        parameters=(_COLLECTION_ID, _LIMIT, _CURSOR, *_SIGNATURE),
        success={
            200: Response(
                "A page",
                ListPerkHoldersResponse,
                {"a page": _page_example(1), "the last page": _page_example(2)},
                headers=(AGE,),
            ),
        },
        errors=ERRORS,
        error_examples=_READ_EXAMPLES,
        body_limit=BODY_LIMIT,
        rate_window=_WINDOW,
    ),
)

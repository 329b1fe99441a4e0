"""The requests and responses of the perk charge endpoints.

Token ids are decimal strings in responses, since they exceed the range of JSON numbers that
JavaScript reads exactly. Requests may send a string or a number.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar
from urllib.parse import parse_qs

import msgspec
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from ltzd.actions.perk_charges import IndexedHeight, RedeemedCharges, RedeemRequest
from ltzd.errors import InvalidFields, MissingFields
from ltzd.http.models import RequestModel, ResponseModel
from ltzd.http.requests.fields import (
    AddressText,
    Integer,
    field_error,
    invalid_fields,
    whole_number,
)
from ltzd.rules.perk_charges import SERIAL_BITS, Token
from ltzd.store.indexer.tokens import TokenPage
from ltzd.values import Address, address_of, checksummed, hex_of, iso

MAX_REDEEMED = 65_535
MAX_PAGE_SIZE = 100
SAFE_DISTANCE = 32
"""Blocks behind the indexed head at which a fact counts as safe."""

REQUIRED = ("collectionId", "tokenId")

M = TypeVar("M", bound=RequestModel)
V = TypeVar("V")
Finality = Literal["seen", "safe", "final"]

_MAX_UINT256 = 2**256 - 1
_CACHED_QUERIES = 1_000
"""Parsed list queries: the same pages are requested again and again."""
_PLAIN_STATUS = re.compile(r"collectionId=([1-9][0-9]{0,70})&tokenId=([0-9]{1,70})")
"""70 digits stay below 2^256, so that no range check is needed."""
_DECIMAL = re.compile(r"[0-9]{1,78}")
_DECIMAL_PATTERN = "^[0-9]{1,78}$"
_CURSOR = re.compile(r"[A-Za-z0-9_-]{1,44}")
_CURSOR_VERSION = b"\x01"


def _token_id(value: object) -> int:
    value = whole_number(value)
    match value:
        case str() if _DECIMAL.fullmatch(value) and (number := int(value)) <= _MAX_UINT256:
            return number
        case int() if not isinstance(value, bool) and 0 <= value <= _MAX_UINT256:
            return value
    raise field_error("must be a whole number below 2^256, as decimal text or an integer")


def _collection_id(number: int) -> int:
    if 1 <= number <= _MAX_UINT256:
        return number
    raise field_error("must be a whole number from 1 to below 2^256")


def _collection_id_text(text: str) -> int:
    if _DECIMAL.fullmatch(text) and 1 <= (number := int(text)) <= _MAX_UINT256:
        return number
    raise field_error("must be a whole number from 1 to below 2^256, in decimal digits")


def _amount(number: int) -> int:
    if 1 <= number <= MAX_REDEEMED:
        return number
    raise field_error(f"must be a whole number from 1 to {MAX_REDEEMED}")


def _limit_text(text: str) -> int:
    if _DECIMAL.fullmatch(text) and 1 <= (number := int(text)) <= MAX_PAGE_SIZE:
        return number
    raise field_error(f"must be a whole number from 1 to {MAX_PAGE_SIZE}")


def _idempotency_key(text: str) -> str:
    if 8 <= len(text) <= 64 and text.isprintable():
        return text
    raise field_error("must be 8 to 64 printable characters")


def cursor_after(token_id: int) -> str:
    """The cursor of the page after this token. Opaque to callers."""
    raw = _CURSOR_VERSION + token_id.to_bytes(max(1, (token_id.bit_length() + 7) // 8), "big")
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _cursor(text: str) -> int:
    """The token's id. Accepts only the exact text that `cursor_after` returns."""
    if _CURSOR.fullmatch(text) and len(text) % 4 != 1:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token_id = int.from_bytes(raw[1:], "big")
        if raw[:1] == _CURSOR_VERSION and text == cursor_after(token_id):
            return token_id
    raise field_error("must be the nextCursor of an answer")


_TEXT_OR_INTEGER = [
    {"type": "string", "pattern": _DECIMAL_PATTERN},
    {"type": "integer", "minimum": 0},
]

CollectionId = Annotated[
    Integer,
    AfterValidator(_collection_id),
    WithJsonSchema({"type": "integer", "minimum": 1, "description": "Below 2^256"}),
]
TokenId = Annotated[
    int,
    BeforeValidator(_token_id),
    WithJsonSchema({"anyOf": _TEXT_OR_INTEGER, "description": "Below 2^256"}),
]
Amount = Annotated[
    Integer,
    AfterValidator(_amount),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_REDEEMED}),
]
IdempotencyKey = Annotated[
    str,
    AfterValidator(_idempotency_key),
    WithJsonSchema({"type": "string", "minLength": 8, "maxLength": 64}),
]
CollectionIdText = Annotated[
    int,
    BeforeValidator(_collection_id_text),
    WithJsonSchema({"type": "string", "pattern": _DECIMAL_PATTERN}),
]
LimitText = Annotated[int, BeforeValidator(_limit_text), WithJsonSchema({"type": "string"})]
Cursor = Annotated[int, BeforeValidator(_cursor), WithJsonSchema({"type": "string"})]


class RedeemPerkBody(RequestModel):
    """Charges of a token to redeem."""

    collection_id: CollectionId
    token_id: TokenId
    amount: Amount | None = Field(None, description="Charges; default 1")
    user_address: AddressText | None = Field(
        None, description="The wallet that must hold the token; default: any holder"
    )
    reference: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="Free text of the brand's, such as a receipt number"
    )
    idempotency_key: IdempotencyKey | None = Field(
        None, description="Printable characters. Requests with the same key redeem once"
    )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises MissingFields if a required field is absent, else InvalidFields."""
        return _validated(cls, body, REQUIRED)

    def to_request(self, brand: Address, nonce: str) -> RedeemRequest:
        return RedeemRequest(
            brand=brand,
            nonce=nonce,
            collection_id=self.collection_id,
            token_id=self.token_id,
            amount=self.amount or 1,
            user=None if self.user_address is None else address_of(self.user_address),
            reference=self.reference,
            idempotency_key=self.idempotency_key,
            fingerprint=self._fingerprint(),
        )

    def _fingerprint(self) -> bytes:
        """A hash of the meaning: equal for equal requests, however their values are written."""
        user = None if self.user_address is None else self.user_address.lower()
        token = (str(self.collection_id), str(self.token_id))
        content = (*token, self.amount or 1, user, self.reference)
        return hashlib.sha256(msgspec.json.encode(content)).digest()


class TokenQuery(NamedTuple):
    """A parsed query of GET /check-perk-status."""

    collection_id: int
    token_id: int


class CheckPerkStatusQuery(RequestModel):
    """Query of GET /check-perk-status."""

    collection_id: CollectionIdText
    token_id: TokenId

    @classmethod
    def from_text(cls, text: str) -> TokenQuery:
        """Raises MissingFields and InvalidFields."""
        plain = _PLAIN_STATUS.fullmatch(text)
        if plain is not None:
            # The usual form needs no further validation, which takes most of the time.
            return TokenQuery(int(plain[1]), int(plain[2]))
        query = _validated(cls, _single_values(text, *REQUIRED), REQUIRED)
        return TokenQuery(query.collection_id, query.token_id)


class ListPerkHoldersQuery(RequestModel):
    """Query of GET /list-perk-holders. `cursor` is the last token of the page before."""

    collection_id: CollectionIdText
    limit: LimitText = 50
    cursor: Cursor = 0

    @classmethod
    @lru_cache(_CACHED_QUERIES)
    def from_text(cls, text: str) -> Self:
        """Raises MissingFields and InvalidFields."""
        values = _single_values(text, "collectionId", "limit", "cursor")
        query = _validated(cls, values, REQUIRED[:1])
        if query.cursor and query.cursor >> SERIAL_BITS != query.collection_id:
            raise InvalidFields(["cursor: must be the nextCursor of this collection's list"])
        return query


def _single_values(text: str, *names: str) -> dict[str, str]:
    """The parameters with these names. One without a value counts as absent.

    Raises InvalidFields for a repeated parameter: a proxy may have read another value.
    """
    query = parse_qs(text, keep_blank_values=True)
    values = {name: query[name] for name in names if name in query}
    repeated = [name for name, texts in values.items() if len(texts) > 1]
    if repeated:
        raise InvalidFields([f"{name}: must be given once" for name in repeated])
    return {name: texts[0] for name, texts in values.items() if texts[0]}


def _validated(model: type[M], fields: Mapping[str, Any], required: Sequence[str]) -> M:
    missing = [name for name in required if fields.get(name) is None]
    if missing:
        raise MissingFields(missing)
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise invalid_fields(error) from None


class RedeemPerkResponse(ResponseModel):
    """A redemption. With a 202 it is published but not mined, and `status` is `pending`."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    success: Literal[True]
    redemption_id: str = Field(description="A UUID; the start of its reference on chain")
    collection_id: int
    token_id: str
    holder: str = Field(description="The wallet that held the token")
    charges_redeemed: int
    charges_remaining: int = Field(description="Right after this redemption")
    max_charges: int
    transaction_hash: str | None
    redeemed_at: str | None = Field(description="When ltzd saw it mined; null with a 202")
    status: Literal["pending"] | None = Field(None, description="Present with a 202 only")
    already_processed: Literal[True] | None = Field(
        None, description="Present if the idempotency key was used before"
    )

    @staticmethod
    def body(redeemed: RedeemedCharges) -> dict[str, object]:
        redemption = redeemed.redemption
        body: dict[str, object] = {
            "success": True,
            "redemptionId": str(redemption.id),
            "collectionId": redemption.collection_id,
            "tokenId": str(redemption.token_id),
            "holder": checksummed(redemption.holder),
            "chargesRedeemed": redemption.amount,
            "chargesRemaining": redemption.remaining,
            "maxCharges": redemption.max_charges,
            "transactionHash": _text(redemption.transaction_hash, hex_of),
            "redeemedAt": _text(redemption.mined_at, iso),
        }
        if redemption.succeeded is None:
            body["status"] = "pending"
        if redeemed.already_processed:
            body["alreadyProcessed"] = True
        return body


class CheckPerkStatusResponse(ResponseModel):
    """The charges of a token."""

    success: Literal[True]
    collection_id: int
    token_id: str
    holder: str
    max_charges: int
    charges_used: int
    charges_remaining: int
    status: Literal["active", "exhausted"]
    last_redeemed_at: str | None
    as_of_block: int = Field(description="The last indexed block when this was read")
    finality: Finality = Field(
        description="Of the newest fact about the token: in a block, "
        f"{SAFE_DISTANCE} blocks behind asOfBlock, or final"
    )

    @staticmethod
    def body(token: Token, as_of: IndexedHeight) -> dict[str, object]:
        return {
            "success": True,
            "collectionId": token.collection_id,
            "tokenId": str(token.id),
            "holder": checksummed(token.holder),
            "maxCharges": token.max_charges,
            "chargesUsed": token.used,
            "chargesRemaining": token.remaining,
            "status": "active" if token.remaining else "exhausted",
            "lastRedeemedAt": _text(token.last_redeemed_at, iso),
            "asOfBlock": as_of.block,
            "finality": finality_of(token, as_of),
        }


class PerkHolder(ResponseModel):
    """A token and its holder."""

    wallet_address: str
    token_id: str
    max_charges: int
    charges_used: int
    charges_remaining: int
    claimed_at: str
    last_redeemed_at: str | None


class ListPerkHoldersResponse(ResponseModel):
    """A page of a collection's tokens, in the order in which they were claimed."""

    success: Literal[True]
    collection_id: int
    holders: list[PerkHolder]
    count: int = Field(description="Tokens in this page")
    total: int = Field(description="Tokens in the collection; a wallet may hold several")
    next_cursor: str | None = Field(description="Of the next page; null on the last page")

    @staticmethod
    def body(query: ListPerkHoldersQuery, page: TokenPage) -> dict[str, object]:
        """`page` holds one token more than the query's limit if another page follows."""
        tokens = page.tokens[: query.limit]
        return {
            "success": True,
            "collectionId": query.collection_id,
            "holders": [_holder(token) for token in tokens],
            "count": len(tokens),
            "total": page.total,
            "nextCursor": cursor_after(tokens[-1].id) if len(page.tokens) > len(tokens) else None,
        }


def finality_of(token: Token, as_of: IndexedHeight) -> Finality:
    if token.block_number <= as_of.final_block:
        return "final"
    return "safe" if token.block_number <= as_of.block - SAFE_DISTANCE else "seen"


def _holder(token: Token) -> dict[str, object]:
    return {
        "walletAddress": checksummed(token.holder),
        "tokenId": str(token.id),
        "maxCharges": token.max_charges,
        "chargesUsed": token.used,
        "chargesRemaining": token.remaining,
        "claimedAt": iso(token.claimed_at),
        "lastRedeemedAt": _text(token.last_redeemed_at, iso),
    }


def _text(value: V | None, write: Callable[[V], str]) -> str | None:
    return None if value is None else write(value)

"""Requests and answers of the perk charge endpoints, as validated, as sent and as documented.

Ids of tokens are decimal text in answers, since no JSON number holds them;
requests may give either.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, TypeVar
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
from pydantic_core import PydanticCustomError

from ltzd.actions.perk_charges import IndexedHeight, RedeemedCharges, RedeemRequest
from ltzd.errors import InvalidFields, MissingFields
from ltzd.http.event_handler.models import Answered, Sent
from ltzd.http.relayer.models import RelayRefusal
from ltzd.http.requests.fields import AddressText, invalid_fields
from ltzd.rules.perk_charges import SERIAL_BITS, Token
from ltzd.store.indexer.tokens import TokenPage
from ltzd.values import Address, address_of, checksummed, hex_of, iso

MOST_REDEEMED = 65_535
MOST_IN_A_PAGE = 100
SAFE_DEPTH = 32
"""Blocks behind the followed head from which on a fact is called safe."""

REQUIRED = ("collectionId", "tokenId")

M = TypeVar("M", bound=Sent)
V = TypeVar("V")
Finality = Literal["seen", "safe", "final"]

_MOST = 2**256 - 1
_QUERIES_KEPT = 1_000
"""Of lists: the same pages are asked for again and again."""
_PLAIN_STATUS = re.compile(r"collectionId=([1-9][0-9]{0,70})&tokenId=([0-9]{1,70})")
"""Numbers that are below 2^256 however large."""
_DECIMAL = re.compile(r"[0-9]{1,78}")
_DECIMAL_PATTERN = "^[0-9]{1,78}$"
_CURSOR = re.compile(r"[A-Za-z0-9_-]{1,44}")
_CURSOR_VERSION = b"\x01"


def _fault(reason: str) -> PydanticCustomError:
    return PydanticCustomError("format", "{reason}", {"reason": reason})


def _token_id(given: object) -> int:
    match given:
        case str() if _DECIMAL.fullmatch(given) and (number := int(given)) <= _MOST:
            return number
        case int() if not isinstance(given, bool) and 0 <= given <= _MOST:
            return given
    raise _fault("must be a whole number below 2^256, as decimal text or an integer")


def _collection_id(number: int) -> int:
    if 1 <= number <= _MOST:
        return number
    raise _fault("must be a whole number from 1 to below 2^256")


def _collection_id_text(given: str) -> int:
    if _DECIMAL.fullmatch(given) and 1 <= (number := int(given)) <= _MOST:
        return number
    raise _fault("must be a whole number from 1 to below 2^256, in decimal digits")


def _amount(number: int) -> int:
    if 1 <= number <= MOST_REDEEMED:
        return number
    raise _fault(f"must be a whole number from 1 to {MOST_REDEEMED}")


def _limit_text(given: str) -> int:
    if _DECIMAL.fullmatch(given) and 1 <= (number := int(given)) <= MOST_IN_A_PAGE:
        return number
    raise _fault(f"must be a whole number from 1 to {MOST_IN_A_PAGE}")


def _idempotency_key(text: str) -> str:
    if 8 <= len(text) <= 64 and text.isprintable():
        return text
    raise _fault("must be 8 to 64 printable characters")


def cursor_behind(token_id: int) -> str:
    """Opaque to callers: they hand it back to have the page behind this token."""
    raw = _CURSOR_VERSION + token_id.to_bytes(max(1, (token_id.bit_length() + 7) // 8), "big")
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _cursor(given: str) -> int:
    """The token's id, from text that is byte for byte one of ours."""
    if _CURSOR.fullmatch(given) and len(given) % 4 != 1:
        raw = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4))
        token_id = int.from_bytes(raw[1:], "big")
        if raw[:1] == _CURSOR_VERSION and given == cursor_behind(token_id):
            return token_id
    raise _fault("must be the nextCursor of an answer")


_BOTH = [{"type": "string", "pattern": _DECIMAL_PATTERN}, {"type": "integer", "minimum": 0}]

CollectionId = Annotated[
    int, AfterValidator(_collection_id), WithJsonSchema({"type": "integer", "minimum": 1})
]
TokenId = Annotated[int, BeforeValidator(_token_id), WithJsonSchema({"anyOf": _BOTH})]
Amount = Annotated[
    int,
    AfterValidator(_amount),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_REDEEMED}),
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


class PerkRedemption(Sent):
    """Charges of a token that its brand redeems."""

    collection_id: CollectionId
    token_id: TokenId
    amount: Amount | None = Field(None, description="Charges; default 1")
    user_address: AddressText | None = Field(
        None, description="Who is to hold the token; default: whoever does"
    )
    reference: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="The brand's own words, such as a receipt's number"
    )
    idempotency_key: IdempotencyKey | None = Field(
        None, description="With the same one the same redemption happens once"
    )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises MissingFields before anything else, and InvalidFields with every fault."""
        return _checked(cls, body, REQUIRED)

    def asked(self, brand: Address, nonce: str) -> RedeemRequest:
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
        """The same for what means the same, however it is written."""
        user = None if self.user_address is None else self.user_address.lower()
        said = (str(self.collection_id), str(self.token_id), self.amount or 1, user, self.reference)
        return hashlib.sha256(msgspec.json.encode(said)).digest()


class StatusQuery(Sent):
    """Query of GET /check-perk-status."""

    collection_id: CollectionIdText
    token_id: TokenId

    @classmethod
    def from_text(cls, text: str) -> "StatusQuery":
        """Raises as PerkRedemption does."""
        plain = _PLAIN_STATUS.fullmatch(text)
        if plain is not None:
            # As nearly everybody writes it: checked by its form, in a fraction of the time.
            return cls.model_construct(collection_id=int(plain[1]), token_id=int(plain[2]))
        return _checked(cls, _given_once(parse_qs(text), *REQUIRED), REQUIRED)


class HoldersQuery(Sent):
    """Query of GET /list-perk-holders; `cursor` is the token that the page before ended with."""

    collection_id: CollectionIdText
    limit: LimitText = 50
    cursor: Cursor = 0

    @classmethod
    @lru_cache(_QUERIES_KEPT)
    def from_text(cls, text: str) -> Self:
        """Raises as PerkRedemption does."""
        given = _given_once(parse_qs(text), "collectionId", "limit", "cursor")
        asked = _checked(cls, given, REQUIRED[:1])
        if asked.cursor and asked.cursor >> SERIAL_BITS != asked.collection_id:
            raise InvalidFields(["cursor: must be the nextCursor of this collection's list"])
        return asked


def _given_once(query: Mapping[str, Sequence[str]], *names: str) -> dict[str, str]:
    """Raises InvalidFields, since of two values somebody before us may have read the other."""
    given = {name: query[name] for name in names if name in query}
    doubled = [name for name, values in given.items() if len(values) > 1]
    if doubled:
        raise InvalidFields([f"{name}: must be given once" for name in doubled])
    return {name: values[0] for name, values in given.items()}


def _checked(model: type[M], said: Mapping[str, Any], required: Sequence[str]) -> M:
    missing = [name for name in required if said.get(name) is None]
    if missing:
        raise MissingFields(missing)
    try:
        return model.model_validate(said)
    except ValidationError as error:
        raise invalid_fields(error) from None


class RedeemedAnswer(Answered):
    """A redemption. In a 202 it is published and not mined: `status` says so."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    success: Literal[True]
    redemption_id: str = Field(description="A UUID; the start of its reference on chain")
    collection_id: int
    token_id: str
    holder: str = Field(description="Who held the token then")
    charges_redeemed: int
    charges_remaining: int = Field(description="Right after this redemption")
    max_charges: int
    transaction_hash: str | None
    redeemed_at: str | None = Field(description="When ltzd saw it mined; null in a 202")
    status: Literal["pending"] | None = Field(None, description="In a 202 only")
    already_processed: Literal[True] | None = Field(
        None, description="Only where the idempotency key came before"
    )

    @staticmethod
    def body(redeemed: RedeemedCharges) -> dict[str, object]:
        one = redeemed.redemption
        body: dict[str, object] = {
            "success": True,
            "redemptionId": str(one.id),
            "collectionId": one.collection_id,
            "tokenId": str(one.token_id),
            "holder": checksummed(one.holder),
            "chargesRedeemed": one.amount,
            "chargesRemaining": one.remaining,
            "maxCharges": one.max_charges,
            "transactionHash": _text(one.transaction_hash, hex_of),
            "redeemedAt": _text(one.mined_at, iso),
        }
        if one.succeeded is None:
            body["status"] = "pending"
        if redeemed.already_processed:
            body["alreadyProcessed"] = True
        return body


class PerkStatusAnswer(Answered):
    """What is left of a token."""

    success: Literal[True]
    collection_id: int
    token_id: str
    holder: str
    max_charges: int
    charges_used: int
    charges_remaining: int
    status: Literal["active", "exhausted"]
    last_redeemed_at: str | None
    as_of_block: int = Field(description="How far the chain was followed when this was read")
    finality: Finality = Field(
        description="Of the newest fact about the token: seen in a block, "
        f"{SAFE_DEPTH} blocks deep, final"
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


class PerkHolder(Answered):
    """A token and who holds it."""

    wallet_address: str
    token_id: str
    max_charges: int
    charges_used: int
    charges_remaining: int
    claimed_at: str
    last_redeemed_at: str | None


class PerkHoldersAnswer(Answered):
    """A page of a collection's tokens, in the order in which they were claimed."""

    success: Literal[True]
    collection_id: int
    holders: list[PerkHolder]
    count: int = Field(description="Tokens in this page")
    total: int = Field(description="Tokens in the collection; a wallet may hold several")
    next_cursor: str | None = Field(description="For the page behind this one; null at the end")

    @staticmethod
    def body(query: HoldersQuery, found: TokenPage) -> dict[str, object]:
        """`found` has one more than was asked for, if there is one more."""
        page = found.tokens[: query.limit]
        return {
            "success": True,
            "collectionId": query.collection_id,
            "holders": [_holder(token) for token in page],
            "count": len(page),
            "total": found.total,
            "nextCursor": cursor_behind(page[-1].id) if len(found.tokens) > len(page) else None,
        }


class PerkRefusal(RelayRefusal):
    """Every other answer about perk charges (spec 7.2)."""


def finality_of(token: Token, as_of: IndexedHeight) -> Finality:
    if token.block_number <= as_of.final_block:
        return "final"
    return "safe" if token.block_number <= as_of.block - SAFE_DEPTH else "seen"


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


def _text(value: V | None, shown: Callable[[V], str]) -> str | None:
    return None if value is None else shown(value)

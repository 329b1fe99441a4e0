"""Requests and answers of checkout and payment mints (spec 2.5, 2.6), as checked, sent and
documented.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from ltzd.actions.payments import CheckoutRequest, MintedPayment
from ltzd.errors import InvalidFields
from ltzd.http.event_handler.models import Answered, Sent
from ltzd.http.requests.fields import (
    IDEMPOTENCY_KEY_RULE,
    BrandId,
    Email,
    SourceUrl,
    faults_in,
    idempotency_key,
    invalid_fields,
)
from ltzd.providers.payments import CheckoutPage
from ltzd.rules.payments import CURRENCY, LEAST_CENTS, MOST_CENTS, SESSION_ID
from ltzd.values import address_of, checksummed, hex_of


def _fault(reason: str) -> PydanticCustomError:
    return PydanticCustomError("format", "{reason}", {"reason": reason})


def _cents(number: int) -> int:
    if LEAST_CENTS <= number <= MOST_CENTS:
        return number
    raise _fault(f"must be a whole number of cents from {LEAST_CENTS} to {MOST_CENTS}")


def _dollars_only(text: str) -> str:
    """People write a currency's code in capitals, the provider in small letters."""
    if text.isascii() and text.lower() == CURRENCY:
        return CURRENCY
    raise _fault(f"must be {CURRENCY}")


def _session_id(text: str) -> str:
    if SESSION_ID.fullmatch(text):
        return text
    raise _fault("must be a checkout session's id, cs_ and letters, digits and underscores")


Cents = Annotated[
    int,
    AfterValidator(_cents),
    WithJsonSchema({"type": "integer", "minimum": LEAST_CENTS, "maximum": MOST_CENTS}),
]
Dollars = Annotated[
    str,
    AfterValidator(_dollars_only),
    WithJsonSchema({"type": "string", "pattern": "^[Uu][Ss][Dd]$", "default": CURRENCY}),
]
SessionId = Annotated[
    str,
    AfterValidator(_session_id),
    WithJsonSchema({"type": "string", "pattern": "^cs_[A-Za-z0-9_]{1,250}$"}),
]


class CheckoutOrder(Sent):
    """LTZ to be bought (spec 2.5); a dollar buys 1,000."""

    brand_id: BrandId
    amount: Cents = Field(description="US cents")
    currency: Dollars | None = None
    user_email: Email = Field(description="Whose wallet the LTZ go to; made if there is none")
    success_url: SourceUrl = Field(
        description="{CHECKOUT_SESSION_ID} in it becomes the session's id"
    )
    cancel_url: SourceUrl

    def asked(self, key: str | None) -> CheckoutRequest:
        return CheckoutRequest(
            brand_id=address_of(self.brand_id),
            usd_cents=self.amount,
            email=self.user_email,
            success_url=self.success_url,
            cancel_url=self.cancel_url,
            idempotency_key=key,
        )


def checkout_request(body: Mapping[str, Any], key_headers: Sequence[str]) -> CheckoutRequest:
    """`key_headers` are the request's Idempotency-Key lines. Raises InvalidFields."""
    faults = _key_faults(key_headers)
    try:
        order = CheckoutOrder.model_validate(body)
    except ValidationError as error:
        raise InvalidFields([*faults_in(error), *faults]) from None
    if faults:
        raise InvalidFields(faults)
    return order.asked(key_headers[0] if key_headers else None)


def _key_faults(headers: Sequence[str]) -> list[str]:
    if len(headers) > 1:
        return ["Idempotency-Key: must be given once"]
    try:
        for header in headers:
            idempotency_key(header)
    except ValueError:
        return [f"Idempotency-Key: {IDEMPOTENCY_KEY_RULE}"]
    return []


class CheckoutAnswer(Answered):
    success: Literal[True]
    checkout_url: str = Field(description="Where the user pays")
    session_id: str

    @staticmethod
    def body(opened: CheckoutPage) -> dict[str, object]:
        return {"success": True, "checkoutUrl": opened.url, "sessionId": opened.id}


class PaidSession(Sent):
    """A checkout session that may be paid."""

    session_id: SessionId

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises InvalidFields."""
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise invalid_fields(error) from None


class PaymentMintAnswer(Answered):
    """A minted payment (spec 2.6)."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    success: Literal[True]
    message: str
    tx_hash: str = Field(description="May change through a replacement or a reorg")
    block_explorer: str | None = Field(
        description="Null where no explorer is configured or known for the chain"
    )
    wallet_address: str
    usd_amount: float = Field(description="Dollars")
    ltz_amount: int = Field(description="Whole LTZ")
    payment_intent_id: str
    already_processed: Literal[True] | None = Field(
        None, description="The session was minted before, and is not again"
    )

    @staticmethod
    def body(minted: MintedPayment, explorer_url: str | None) -> dict[str, object]:
        payment, tx_hash = minted.payment, hex_of(minted.transaction_hash)
        body: dict[str, object] = {
            "success": True,
            "message": f"{payment.ltz} LTZ minted",
            "txHash": tx_hash,
            "blockExplorer": None if explorer_url is None else f"{explorer_url}/tx/{tx_hash}",
            "walletAddress": checksummed(payment.wallet),
            "usdAmount": _dollars(payment.usd_cents),
            "ltzAmount": payment.ltz,
            "paymentIntentId": payment.payment_intent_id,
        }
        if minted.already_processed:
            body |= {"message": "Payment already processed", "alreadyProcessed": True}
        return body


def _dollars(cents: int) -> int | float:
    """Below 10^13 the nearest float is written with the two digits that it came from."""
    whole, rest = divmod(cents, 100)
    return whole if rest == 0 else cents / 100


class PaymentMintRefusal(Answered):
    """Every other answer of payment-mint (spec 7.4)."""

    success: Literal[False]
    message: str


class ProviderEvent(Sent):
    """An event as the payment provider sends and signs it; more fields than these."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    type: str
    data: dict[str, Any] = Field(description="`object` is what it happened to")


class EventReceived(Answered):
    success: Literal[True] = True
    received: Literal[True] = True

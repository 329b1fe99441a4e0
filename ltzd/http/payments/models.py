"""The requests and responses of checkout and payment mints (spec 2.5, 2.6)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from ltzd.actions.payments import CheckoutRequest, MintedPayment
from ltzd.errors import InvalidFields
from ltzd.http.models import RequestModel, ResponseModel
from ltzd.http.requests.fields import BrandId, Email, Integer, SourceUrl, faults_in, field_error
from ltzd.http.requests.idempotency_key import key_faults
from ltzd.providers.checkouts import CheckoutPage
from ltzd.rules.payments.sessions import CURRENCY, LEAST_CENTS, MOST_CENTS, SESSION_ID
from ltzd.values import address_of, checksummed, hex_of


def _cents(number: int) -> int:
    if LEAST_CENTS <= number <= MOST_CENTS:
        return number
    raise field_error(f"must be a whole number of cents from {LEAST_CENTS} to {MOST_CENTS}")


def _dollars_only(text: str) -> str:
    """In lower case, as the payment provider writes currency codes."""
    if text.isascii() and text.lower() == CURRENCY:
        return CURRENCY
    raise field_error(f"must be {CURRENCY}")


def _session_id(text: str) -> str:
    if SESSION_ID.fullmatch(text):
        return text
    raise field_error("must be a checkout session's id, cs_ and letters, digits and underscores")


Cents = Annotated[
    Integer,
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


class CreateCheckoutBody(RequestModel):
    """A purchase of LTZ (spec 2.5): a dollar buys 1,000."""

    brand_id: BrandId
    amount: Cents = Field(description="US cents")
    currency: Dollars | None = None
    user_email: Email = Field(
        description="The LTZ go to this user's wallet, which is created if there is none"
    )
    success_url: SourceUrl = Field(
        description="With a host and without a user name. {CHECKOUT_SESSION_ID} in it becomes the "
        "session's id"
    )
    cancel_url: SourceUrl

    def to_request(self, key: str | None) -> CheckoutRequest:
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
    faults = key_faults(key_headers)
    try:
        order = CreateCheckoutBody.model_validate(body)
    except ValidationError as error:
        raise InvalidFields([*faults_in(error), *faults]) from None
    if faults:
        raise InvalidFields(faults)
    return order.to_request(key_headers[0] if key_headers else None)


class CreateCheckoutResponse(ResponseModel):
    success: Literal[True]
    checkout_url: str = Field(description="The page where the user pays")
    session_id: str

    @staticmethod
    def body(session: CheckoutPage) -> dict[str, object]:
        return {"success": True, "checkoutUrl": session.url, "sessionId": session.id}


class PaymentMintBody(RequestModel):
    """A paid checkout session."""

    session_id: SessionId


class PaymentMintResponse(ResponseModel):
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
        None, description="The session was minted before; nothing was minted now"
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
    """A float below 10^13 is written with exactly its two decimals."""
    whole, rest = divmod(cents, 100)
    return whole if rest == 0 else cents / 100


class PaymentWebhookBody(RequestModel):
    """An event that the payment provider sends and signs, with more fields than these."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    type: str
    data: dict[str, Any] = Field(
        description="`object` is the session, charge or dispute of the event"
    )


class PaymentWebhookResponse(ResponseModel):
    success: Literal[True] = True
    received: Literal[True] = True

"""Decides which checkout sessions are minted, and reads the payment provider's events.

Money is in whole US cents, LTZ in whole LTZ; a dollar buys 1,000. A text of the provider is kept
only if it matches a pattern, so that no other text reaches the database.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ltzd.errors import InvalidFields, PaymentRefused
from ltzd.rules.amounts import units_of
from ltzd.values import LTZ, ZERO_ADDRESS, Address, address_of, checksummed, hex_of

LTZ_PER_DOLLAR = 1_000
LTZ_PER_CENT = 10
LEAST_CENTS, MOST_CENTS = 50, 99_999_999
"""The range of one payment at the provider."""
CURRENCY = "usd"
NO_BRAND = ZERO_ADDRESS
"""The brand of a session whose metadata names no brand."""
EVENT_TOLERANCE_SECONDS = 300

SESSION_ID = re.compile(r"cs_[A-Za-z0-9_]{1,250}")
_OBJECT_ID = re.compile(r"[A-Za-z0-9_]{1,255}")
_WALLET = re.compile(r"0x[0-9A-Fa-f]{40}")
_REASON = re.compile(r"[a-z0-9_]{1,100}")
_UNITS_PER_CENT = LTZ // 100
_MOST_REVERSED_CENTS = 10**12

REFUNDED = "refunded"
"""The reason of the only refusal after which ltzd keeps no money."""


@dataclass(frozen=True, slots=True)
class CheckoutOrder:
    """The parameters of a new checkout session."""

    brand_id: Address
    wallet: Address
    usd_cents: int
    email: str
    success_url: str
    cancel_url: str

    @property
    def ltz(self) -> int:
        return self.usd_cents * LTZ_PER_CENT

    def metadata(self) -> dict[str, str]:
        """The metadata of spec 2.6, and the brand."""
        return {
            "wallet": checksummed(self.wallet),
            "usd_amount": dollars_text(self.usd_cents),
            "ltz_amount": str(self.ltz),
            "brand_id": hex_of(self.brand_id),
        }


@dataclass(frozen=True, slots=True)
class CheckoutSession:
    """A checkout session as the provider has it now. A field is None if the provider omits it."""

    id: str
    mode: str | None
    status: str | None
    payment_status: str | None
    currency: str | None
    amount_total: int | None
    payment_intent_id: str | None
    refunded_cents: int
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Payment:
    """A paid session that may be minted."""

    session_id: str
    brand_id: Address
    wallet: Address
    usd_cents: int
    payment_intent_id: str

    @property
    def ltz(self) -> int:
        return self.usd_cents * LTZ_PER_CENT


def dollars_text(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def refuse_over_capacity(usd_cents: int, capacity: int | None) -> None:
    """`capacity` is the most LTZ that the mint limit can ever cover, or None if it is unknown."""
    if capacity is None or usd_cents * LTZ_PER_CENT <= capacity:
        return
    most = capacity // LTZ_PER_CENT
    raise InvalidFields([f"amount: buys more LTZ than can be minted at once; at most {most} cents"])


def payment_of(session: CheckoutSession) -> Payment:
    """Raises PaymentRefused with the first reason not to mint it (spec 7.4)."""
    _refuse_unpaid(session)
    wallet = _wallet_in(session.metadata)
    cents = _cents_in(session.metadata)
    if session.amount_total != cents:
        raise _refused("Amount mismatch: the session's total is not usd_amount", "amount_mismatch")
    if session.refunded_cents >= cents:
        raise refused_refund()
    intent = session.payment_intent_id
    if intent is None or not _OBJECT_ID.fullmatch(intent):
        raise _refused("The checkout session has no payment", "no_payment")
    return Payment(session.id, _brand_in(session.metadata), wallet, cents, intent)


def not_found() -> PaymentRefused:
    return _refused("Checkout session not found", "not_found")


def refused_refund() -> PaymentRefused:
    return _refused("The payment was refunded", REFUNDED)


def _refused(message: str, reason: str) -> PaymentRefused:
    return PaymentRefused(message, reason=reason)


def _refuse_unpaid(session: CheckoutSession) -> None:
    if session.mode != "payment":
        raise _refused("The checkout session is not a payment", "mode")
    if session.status == "expired":
        raise _refused("Payment not completed: the checkout session has expired", "expired")
    if session.payment_status == "no_payment_required":
        raise _refused("Payment not completed: the session required none", "no_payment_required")
    if session.payment_status != "paid":
        raise _refused("Payment not completed", "not_completed")
    if session.currency != CURRENCY:
        raise _refused("Invalid currency: only usd can be minted", "currency")


def _wallet_in(metadata: Mapping[str, str]) -> Address:
    """An address in mixed case must have the right checksum (EIP-55)."""
    text = metadata.get("wallet", "")
    if _WALLET.fullmatch(text):
        wallet = address_of(text)
        is_one_case = text[2:] in {text[2:].lower(), text[2:].upper()}
        if wallet != ZERO_ADDRESS and (is_one_case or text == checksummed(wallet)):
            return wallet
    raise _refused("Invalid wallet address in metadata", "wallet")


def _cents_in(metadata: Mapping[str, str]) -> int:
    """Exact, since `units_of` takes plain digits and returns integers."""
    try:
        dollars = units_of(metadata.get("usd_amount", ""))
        ltz = units_of(metadata.get("ltz_amount", ""))
    except ValueError:
        raise _refused(
            "Invalid amount: usd_amount and ltz_amount must be decimal numbers", "amount"
        ) from None
    cents, rest = divmod(dollars, _UNITS_PER_CENT)
    if rest or ltz % LTZ or not 0 < cents <= MOST_CENTS:
        raise _refused("Invalid amount: not whole cents, or not whole LTZ", "amount")
    if dollars * LTZ_PER_DOLLAR != ltz:
        raise _refused(
            f"Amount mismatch: ltz_amount is not usd_amount times {LTZ_PER_DOLLAR}",
            "amount_mismatch",
        )
    return cents


def _brand_in(metadata: Mapping[str, str]) -> Address:
    text = metadata.get("brand_id", "")
    return address_of(text) if _WALLET.fullmatch(text) else NO_BRAND


# --- events of the provider ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionPaid:
    """The event says that a session is paid; the caller confirms that with the provider."""

    session_id: str


@dataclass(frozen=True, slots=True)
class PaymentRefund:
    """A refund of the whole payment or a part of it."""

    id: str
    payment_intent_id: str
    usd_cents: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class RefundFailed:
    """A refund that was pending and whose money did not arrive: the provider has it again."""

    id: str
    payment_intent_id: str
    usd_cents: int


@dataclass(frozen=True, slots=True)
class RefundedCharge:
    """The total that was refunded of a charge until now, without the ids of the refunds."""

    charge_id: str
    payment_intent_id: str
    usd_cents: int


@dataclass(frozen=True, slots=True)
class Dispute:
    id: str
    payment_intent_id: str
    usd_cents: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class Unrelated:
    """An event of another type, or about another payment than a session's dollars."""

    type: str


ProviderNotice: TypeAlias = (
    SessionPaid | PaymentRefund | RefundFailed | RefundedCharge | Dispute | Unrelated
)


def parse_event(event: object) -> ProviderNotice:
    """Raises PaymentRefused for a malformed event."""
    match event:
        case {"type": str(kind), "data": {"object": dict(about)}}:
            return _notice(kind, about)
    raise PaymentRefused("The event is malformed: it must have type and data.object")


def _notice(kind: str, about: Mapping[str, object]) -> ProviderNotice:
    match kind:
        case "checkout.session.completed" | "checkout.session.async_payment_succeeded":
            session_id = _id_in(about, SESSION_ID)
            # Slow payment methods complete the session first and pay days later.
            is_paid = about.get("payment_status") == "paid"
            return SessionPaid(session_id) if is_paid else Unrelated(kind)
        case "refund.created" if about.get("status") not in {"failed", "canceled"}:
            money = _money_in(about, "amount")
            return Unrelated(kind) if money is None else PaymentRefund(*money, _reason_in(about))
        case "refund.failed":
            money = _money_in(about, "amount")
            return Unrelated(kind) if money is None else RefundFailed(*money)
        case "charge.refunded":
            money = _money_in(about, "amount_refunded")
            return Unrelated(kind) if money is None else RefundedCharge(*money)
        case "charge.dispute.created":
            money = _money_in(about, "amount")
            return Unrelated(kind) if money is None else Dispute(*money, _reason_in(about))
    return Unrelated(kind)


def _id_in(about: Mapping[str, object], form: re.Pattern[str]) -> str:
    id_ = about.get("id")
    if isinstance(id_, str) and form.fullmatch(id_):
        return id_
    raise PaymentRefused("The event is malformed: data.object has no id of its kind")


def _money_in(about: Mapping[str, object], field: str) -> tuple[str, str, int] | None:
    """The object's id, payment intent and cents, or None if it is not about a session's dollars."""
    id_, cents = _id_in(about, _OBJECT_ID), about.get(field)
    if type(cents) is not int or not 0 <= cents <= _MOST_REVERSED_CENTS:
        raise PaymentRefused(f"The event is malformed: data.object.{field} is no amount")
    intent = id_of(about.get("payment_intent"))
    if intent is None or about.get("currency") != CURRENCY or cents == 0:
        return None
    return id_, intent, cents


def id_of(value: object) -> str | None:
    """The id of an object that the provider gives as an id or expanded."""
    if isinstance(value, Mapping):
        value = value.get("id")
    return value if isinstance(value, str) and _OBJECT_ID.fullmatch(value) else None


def _reason_in(about: Mapping[str, object]) -> str | None:
    reason = about.get("reason")
    return reason if isinstance(reason, str) and _REASON.fullmatch(reason) else None


# --- reversals --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reversal:
    """An additional refund or dispute of a payment. `provider_id` makes it count once."""

    provider_id: str
    kind: Literal["refund", "dispute"]
    payment_intent_id: str
    usd_cents: int
    reason: str | None


def reversal_of(
    notice: PaymentRefund | RefundedCharge | Dispute, refunds: Mapping[str, int]
) -> Reversal | None:
    """The part of the notice that is not recorded yet, or None.

    `refunds` are the payment's recorded refunds, in cents by `provider_id`.

    The provider reports a refund twice, by itself and in its charge's sum, in any order, and may
    send an endpoint only one of the two kinds. The recorded total never exceeds the refunded total,
    and equals that after the last sum, or after all refunds where no sums come. A sum adds its
    excess over all recorded refunds. A refund adds its excess over the additions of sums, since
    they may already contain it.
    """
    match notice:
        case Dispute():
            return Reversal(
                notice.id, "dispute", notice.payment_intent_id, notice.usd_cents, notice.reason
            )
        case RefundedCharge():
            provider_id, reason = f"{notice.charge_id}{_SUM}{notice.usd_cents}", None
            more = notice.usd_cents - sum(refunds.values())
        case PaymentRefund():
            provider_id, reason = notice.id, notice.reason
            more = notice.usd_cents - sum(each for id_, each in refunds.items() if _SUM in id_)
    if provider_id in refunds or more <= 0:
        return None
    return Reversal(provider_id, "refund", notice.payment_intent_id, more, reason)


_SUM = "/"
"""A mark in the ids of sums' additions, which no id of the provider has."""

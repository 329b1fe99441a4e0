"""Checkout sessions and what the payment provider tells of them, judged without I/O.

Money is in whole US cents, LTZ in whole LTZ; a dollar buys 1,000. Texts of the provider's that are
kept match a pattern first, so that nothing else of it reaches the database.
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
"""What the provider takes at once."""
CURRENCY = "usd"
NO_BRAND = ZERO_ADDRESS
"""The brand of a session that names none of ours."""
EVENT_TOLERANCE_SECONDS = 300

SESSION_ID = re.compile(r"cs_[A-Za-z0-9_]{1,250}")
_OBJECT_ID = re.compile(r"[A-Za-z0-9_]{1,255}")
_WALLET = re.compile(r"0x[0-9A-Fa-f]{40}")
_REASON = re.compile(r"[a-z0-9_]{1,100}")
_UNITS_PER_CENT = LTZ // 100
_MOST_REVERSED_CENTS = 10**12

REFUNDED = "refunded"
"""The reason of the one refusal that leaves nobody's money here."""


@dataclass(frozen=True, slots=True)
class CheckoutOrder:
    """What a checkout session is made of."""

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
        """Spec 2.6, and whose session it is."""
        return {
            "wallet": checksummed(self.wallet),
            "usd_amount": dollars_text(self.usd_cents),
            "ltz_amount": str(self.ltz),
            "brand_id": hex_of(self.brand_id),
        }


@dataclass(frozen=True, slots=True)
class CheckoutSession:
    """A checkout session as the provider has it now; None is what it does not say."""

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
    """A paid session, as it is minted."""

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
    """`capacity`: the LTZ that the mint limit can ever hold, None if nobody knows now."""
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
    """Letters of both cases are a checksum (EIP-55)."""
    text = metadata.get("wallet", "")
    if _WALLET.fullmatch(text):
        wallet = address_of(text)
        is_one_case = text[2:] in {text[2:].lower(), text[2:].upper()}
        if wallet != ZERO_ADDRESS and (is_one_case or text == checksummed(wallet)):
            return wallet
    raise _refused("Invalid wallet address in metadata", "wallet")


def _cents_in(metadata: Mapping[str, str]) -> int:
    """Exactly: `units_of` takes plain digits, and counts in integers."""
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
    """A session is said to be paid: ask the provider."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Refund:
    """One refund, whole or partial."""

    id: str
    payment_intent_id: str
    usd_cents: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class RefundedCharge:
    """All that was refunded of a charge until now; of which refunds the provider does not say."""

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
    """Of a type that nothing follows from, or not about dollars that a session brought."""

    type: str


ProviderNotice: TypeAlias = SessionPaid | Refund | RefundedCharge | Dispute | Unrelated


def parse_event(event: object) -> ProviderNotice:
    """Raises PaymentRefused for what is no event."""
    match event:
        case {"type": str(kind), "data": {"object": dict(about)}}:
            return _told(kind, about)
    raise PaymentRefused("The event is malformed: it must have type and data.object")


def _told(kind: str, about: Mapping[str, object]) -> ProviderNotice:
    match kind:
        case "checkout.session.completed" | "checkout.session.async_payment_succeeded":
            session_id = _id_in(about, SESSION_ID)
            # A method that takes days completes the session first and pays later.
            return SessionPaid(session_id) if about.get("payment_status") == "paid" else _no(kind)
        case "refund.created" if about.get("status") not in {"failed", "canceled"}:
            told = _money_in(about, "amount")
            return _no(kind) if told is None else Refund(*told, _reason_in(about))
        case "charge.refunded":
            told = _money_in(about, "amount_refunded")
            return _no(kind) if told is None else RefundedCharge(*told)
        case "charge.dispute.created":
            told = _money_in(about, "amount")
            return _no(kind) if told is None else Dispute(*told, _reason_in(about))
    return _no(kind)


def _no(kind: str) -> Unrelated:
    return Unrelated(kind)


def _id_in(about: Mapping[str, object], form: re.Pattern[str]) -> str:
    found = about.get("id")
    if isinstance(found, str) and form.fullmatch(found):
        return found
    raise PaymentRefused("The event is malformed: data.object has no id of its kind")


def _money_in(about: Mapping[str, object], field: str) -> tuple[str, str, int] | None:
    """Its id, payment intent and cents; None if it cannot be about a session's dollars."""
    id_, cents = _id_in(about, _OBJECT_ID), about.get(field)
    if type(cents) is not int or not 0 <= cents <= _MOST_REVERSED_CENTS:
        raise PaymentRefused(f"The event is malformed: data.object.{field} is no amount")
    intent = id_of(about.get("payment_intent"))
    if intent is None or about.get("currency") != CURRENCY or cents == 0:
        return None
    return id_, intent, cents


def id_of(value: object) -> str | None:
    """The id of what the provider names, or shows whole."""
    if isinstance(value, Mapping):
        value = value.get("id")
    return value if isinstance(value, str) and _OBJECT_ID.fullmatch(value) else None


def _reason_in(about: Mapping[str, object]) -> str | None:
    found = about.get("reason")
    return found if isinstance(found, str) and _REASON.fullmatch(found) else None


# --- money that went back -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reversal:
    """So much more of a payment went back, or is disputed. `provider_id` makes it count once."""

    provider_id: str
    kind: Literal["refund", "dispute"]
    payment_intent_id: str
    usd_cents: int
    reason: str | None


def reversal_of(
    told: Refund | RefundedCharge | Dispute, refunds: Mapping[str, int]
) -> Reversal | None:
    """What is new in it; `refunds` are the payment's recorded ones, cents by `provider_id`.

    The provider tells a refund twice, by itself and in its charge's sum, in any order, and an
    endpoint may be sent either kind alone. What is recorded never exceeds what went back, and
    equals it once the last sum has come, or every refund where no sums come: a sum adds what it has
    above all that is recorded, a refund what it has above the additions of sums, which may stand
    for it.
    """
    match told:
        case Dispute():
            return Reversal(told.id, "dispute", told.payment_intent_id, told.usd_cents, told.reason)
        case RefundedCharge():
            provider_id, reason = f"{told.charge_id}{_SUM}{told.usd_cents}", None
            more = told.usd_cents - sum(refunds.values())
        case Refund():
            provider_id, reason = told.id, told.reason
            more = told.usd_cents - sum(each for id_, each in refunds.items() if _SUM in id_)
    if provider_id in refunds or more <= 0:
        return None
    return Reversal(provider_id, "refund", told.payment_intent_id, more, reason)


_SUM = "/"
"""In the id of a sum's addition; the provider's own ids have none."""

"""Decides which checkout sessions are minted.

Raises PaymentRefused with the sentence and the reason of spec 7.4. Units: US cents; whole LTZ.
"""

import re
from collections.abc import Mapping

import msgspec

from ltzd.errors import InvalidFields, PaymentRefused
from ltzd.rules.amounts import units_of
from ltzd.values import LTZ, ZERO_ADDRESS, Address, address_of, checksummed, has_right_case, hex_of

LTZ_PER_DOLLAR = 1_000
LTZ_PER_CENT = 10
LEAST_CENTS, MOST_CENTS = 50, 99_999_999
"""The range of one payment at the provider."""
CURRENCY = "usd"
NO_BRAND = ZERO_ADDRESS
"""The brand of a session whose metadata names no brand."""

SESSION_ID = re.compile(r"cs_[A-Za-z0-9_]{1,250}")
OBJECT_ID = re.compile(r"[A-Za-z0-9_]{1,255}")
"""The form of every id that the provider gives."""
_WALLET = re.compile(r"0x[0-9A-Fa-f]{40}")
_UNITS_PER_CENT = LTZ // 100

REFUNDED = "refunded"
"""The reason of the only refusal after which ltzd keeps no money."""


class CheckoutOrder(msgspec.Struct, frozen=True):
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


class CheckoutSession(msgspec.Struct, frozen=True):
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


class Payment(msgspec.Struct, frozen=True):
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
    """`capacity` is the most LTZ that the mint limit can ever cover, or None if it is unknown.

    A capacity of 0 means that minting is switched off: nobody pays for LTZ that may never come.
    """
    if capacity is None or usd_cents * LTZ_PER_CENT <= capacity:
        return
    if capacity == 0:
        raise InvalidFields(["amount: no LTZ can be bought while minting is switched off"])
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
    if intent is None or not OBJECT_ID.fullmatch(intent):
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
    text = metadata.get("wallet", "")
    if _WALLET.fullmatch(text) and has_right_case(text):
        wallet = address_of(text)
        if wallet != ZERO_ADDRESS:
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

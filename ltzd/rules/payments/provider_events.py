"""Reads the payment provider's signed events. Units: US cents.

An event that concerns no checkout session in dollars is `Unrelated`.
"""

import re
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from ltzd.errors import PaymentRefused
from ltzd.rules.payments.sessions import CURRENCY, OBJECT_ID, SESSION_ID

EVENT_TOLERANCE_SECONDS = 300
"""How far the time of an event's signature may differ from the server's clock."""

_REASON = re.compile(r"[a-z0-9_]{1,100}")
_MOST_REVERSED_CENTS = 10**12
_INQUIRY = ("warning_needs_response", "warning_under_review", "warning_closed")
"""A dispute's statuses while the customer's bank only asks, and no money has moved."""


class SessionPaid(msgspec.Struct, frozen=True):
    """The event says that a session is paid; the caller confirms that with the provider."""

    session_id: str


class PaymentRefund(msgspec.Struct, frozen=True):
    """A refund of the whole payment or a part of it."""

    id: str
    payment_intent_id: str
    usd_cents: int
    reason: str | None


class RefundFailed(msgspec.Struct, frozen=True):
    """A refund that was pending and whose money did not arrive: the provider has it again."""

    id: str
    payment_intent_id: str
    usd_cents: int


class RefundedCharge(msgspec.Struct, frozen=True):
    """The total that was refunded of a charge until now, without the ids of the refunds."""

    charge_id: str
    payment_intent_id: str
    usd_cents: int


class PaymentDispute(msgspec.Struct, frozen=True):
    id: str
    payment_intent_id: str
    usd_cents: int
    reason: str | None


class Unrelated(msgspec.Struct, frozen=True):
    """An event of another type, or about another payment than a session's dollars."""

    type: str


ProviderNotice: TypeAlias = (
    SessionPaid | PaymentRefund | RefundFailed | RefundedCharge | PaymentDispute | Unrelated
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
        case "refund.created" if about.get("status") not in ("failed", "canceled"):
            money = _money_in(about, "amount")
            return Unrelated(kind) if money is None else PaymentRefund(*money, _reason_in(about))
        case "refund.failed":
            money = _money_in(about, "amount")
            return Unrelated(kind) if money is None else RefundFailed(*money)
        case "charge.refunded":
            money = _money_in(about, "amount_refunded")
            return Unrelated(kind) if money is None else RefundedCharge(*money)
        # A dispute that began as an inquiry is created only once, without money.
        case "charge.dispute.created" | "charge.dispute.funds_withdrawn" if (
            about.get("status") not in _INQUIRY
        ):
            money = _money_in(about, "amount")
            return Unrelated(kind) if money is None else PaymentDispute(*money, _reason_in(about))
    return Unrelated(kind)


def _id_in(about: Mapping[str, object], form: re.Pattern[str]) -> str:
    id_ = about.get("id")
    if isinstance(id_, str) and form.fullmatch(id_):
        return id_
    raise PaymentRefused("The event is malformed: data.object has no id of its kind")


def _money_in(about: Mapping[str, object], field: str) -> tuple[str, str, int] | None:
    """The object's id, payment intent and cents, or None if it is not about a session's dollars."""
    id_, cents = _id_in(about, OBJECT_ID), about.get(field)
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
    return value if isinstance(value, str) and OBJECT_ID.fullmatch(value) else None


def _reason_in(about: Mapping[str, object]) -> str | None:
    reason = about.get("reason")
    return reason if isinstance(reason, str) and _REASON.fullmatch(reason) else None

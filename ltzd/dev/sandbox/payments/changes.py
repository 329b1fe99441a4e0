"""The transitions of a checkout session and the events that announce them, without I/O.

Each function returns the changed session and its events. A transition that is not possible raises
ProviderError, as the provider would answer it.
"""

import msgspec
from msgspec.structs import replace

from ltzd.dev.sandbox.payments import objects
from ltzd.dev.sandbox.payments.errors import ProviderError, new_id
from ltzd.dev.sandbox.payments.sessions import (
    ChargeDispute,
    ChargeRefund,
    SandboxSession,
    SessionPayment,
)

Json = dict[str, object]


class Change(msgspec.Struct, frozen=True):
    session: SandboxSession
    events: tuple[tuple[str, Json], ...] = ()
    """Pairs of an event's type and its object."""


def completed(session: SandboxSession, now: float, *, is_paid: bool) -> Change:
    """The payer completed the checkout; with a delayed method the money arrives later."""
    if session.status != "open":
        raise _unexpected(f"This checkout session is {session.status}.")
    payment = SessionPayment(new_id("pi"), new_id("ch"), int(now), is_settled=is_paid)
    changed = replace(session, status="complete", payment=payment if session.amount else None)
    return _with_events(changed, "checkout.session.completed")


def settled(session: SandboxSession) -> Change:
    """The money of a delayed payment method arrived."""
    if session.payment is None or session.payment.is_settled:
        raise _unexpected("This checkout session is not waiting for money.")
    changed = replace(session, payment=replace(session.payment, is_settled=True))
    return _with_events(changed, "checkout.session.async_payment_succeeded")


def expired(session: SandboxSession) -> Change:
    if session.status != "open":
        raise ProviderError(
            f"Only open checkout sessions can expire; this one is {session.status}."
        )
    changed = replace(session, status="expired")
    return Change(changed, (("checkout.session.expired", objects.session(changed)),))


def refunded(
    session: SandboxSession,
    now: float,
    amount: int | None = None,
    reason: str | None = None,
    metadata: dict[str, str] | None = None,
) -> Change:
    """Append a refund of `amount`, by default of all that is not refunded yet."""
    payment = _settled_payment(session)
    if session.dispute is not None:
        raise ProviderError(f"{payment.charge_id} has been charged back.", code="charge_disputed")
    left = session.amount - session.amount_refunded
    if left == 0:
        raise ProviderError(
            f"{payment.charge_id} has already been refunded.", code="charge_already_refunded"
        )
    if amount is not None and amount > left:
        raise ProviderError(f"Only {left} of the charge is not refunded yet.", param="amount")
    refund = ChargeRefund(new_id("re"), int(now), amount or left, reason, metadata or {})
    changed = replace(session, refunds=(*session.refunds, refund))
    return Change(
        changed,
        (
            ("charge.refunded", objects.charge_with_refunds(changed, payment)),
            ("refund.created", objects.refund(changed, payment, refund)),
        ),
    )


def disputed(session: SandboxSession, now: float) -> Change:
    payment = _settled_payment(session)
    left = session.amount - session.amount_refunded
    if session.dispute is not None or left == 0:
        raise _unexpected("Nothing of this charge is left to dispute.")
    dispute = ChargeDispute(new_id("du"), int(now), left, "fraudulent")
    changed = replace(session, dispute=dispute)
    object_ = objects.dispute(changed, payment, dispute)
    return Change(changed, (("charge.dispute.created", object_),))


def _with_events(session: SandboxSession, kind: str) -> Change:
    events = [(kind, objects.session(session))]
    if session.payment is not None and session.payment.is_settled:
        events.append(("payment_intent.succeeded", objects.intent(session, session.payment)))
    return Change(session, tuple(events))


def _settled_payment(session: SandboxSession) -> SessionPayment:
    if session.payment is None or not session.payment.is_settled:
        raise _unexpected("This checkout session has no successful charge.")
    return session.payment


def _unexpected(message: str) -> ProviderError:
    return ProviderError(message, code="payment_intent_unexpected_state")

"""What can happen to a checkout session, and the news that the provider then tells.

Pure: a session and the time give the session as it becomes and its news. What cannot happen
raises ProviderError, as the provider would answer it, and changes nothing.
"""

from dataclasses import dataclass, replace

from ltzd.dev.sandbox.payments import objects
from ltzd.dev.sandbox.payments.errors import ProviderError, new_id
from ltzd.dev.sandbox.payments.sessions import (
    ChargeDispute,
    ChargeRefund,
    CheckoutSession,
    SessionPayment,
)

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    session: CheckoutSession
    news: tuple[tuple[str, Json], ...] = ()
    """An event's type and the object that it is about."""


def completed(session: CheckoutSession, now: float, *, is_paid: bool) -> Change:
    """The payer went through; with a delayed method the money may come later."""
    if session.status != "open":
        raise _unexpected(f"This checkout session is {session.status}.")
    payment = SessionPayment(new_id("pi"), new_id("ch"), int(now), is_settled=is_paid)
    done = replace(session, status="complete", payment=payment if session.amount else None)
    return _told(done, "checkout.session.completed")


def settled(session: CheckoutSession) -> Change:
    """The money of a delayed method came."""
    if session.payment is None or session.payment.is_settled:
        raise _unexpected("This checkout session waits for no money.")
    done = replace(session, payment=replace(session.payment, is_settled=True))
    return _told(done, "checkout.session.async_payment_succeeded")


def expired(session: CheckoutSession) -> Change:
    if session.status != "open":
        raise ProviderError(
            f"Only open checkout sessions can expire; this one is {session.status}."
        )
    done = replace(session, status="expired")
    return Change(done, (("checkout.session.expired", objects.session(done)),))


def refunded(
    session: CheckoutSession,
    now: float,
    amount: int | None = None,
    reason: str | None = None,
    metadata: dict[str, str] | None = None,
) -> Change:
    """The last of the session's refunds is the new one; all that is left is its default amount."""
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
    done = replace(session, refunds=(*session.refunds, refund))
    return Change(
        done,
        (
            ("charge.refunded", objects.charge_with_refunds(done, payment)),
            ("refund.created", objects.refund(done, payment, refund)),
        ),
    )


def disputed(session: CheckoutSession, now: float, reason: str = "fraudulent") -> Change:
    payment = _settled_payment(session)
    left = session.amount - session.amount_refunded
    if session.dispute is not None or left == 0:
        raise _unexpected("Nothing of this charge is left to dispute.")
    dispute = ChargeDispute(new_id("du"), int(now), left, reason)
    done = replace(session, dispute=dispute)
    told = objects.dispute(done, payment, dispute)
    return Change(done, (("charge.dispute.created", told),))


def _told(session: CheckoutSession, kind: str) -> Change:
    news = [(kind, objects.session(session))]
    if session.payment is not None and session.payment.is_settled:
        news.append(("payment_intent.succeeded", objects.intent(session, session.payment)))
    return Change(session, tuple(news))


def _settled_payment(session: CheckoutSession) -> SessionPayment:
    if session.payment is None or not session.payment.is_settled:
        raise _unexpected("This checkout session has no successful charge.")
    return session.payment


def _unexpected(message: str) -> ProviderError:
    return ProviderError(message, code="payment_intent_unexpected_state")

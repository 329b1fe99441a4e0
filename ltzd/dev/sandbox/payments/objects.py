"""The payment provider's objects as JSON, for its API and its events."""

from collections.abc import Collection, Mapping

from ltzd.dev.sandbox.payments.sessions import (
    ChargeDispute,
    ChargeRefund,
    SandboxSession,
    SessionPayment,
)

API_VERSION = "2026-10-28.endive"
"""The API version of events, and of answers to requests that name no version."""

INTENT, CHARGE = "payment_intent", "payment_intent.latest_charge"
"""The expandable fields of a session; the charge is expanded within its intent."""

Json = dict[str, object]


def session(of: SandboxSession, origin: str | None = None, expand: Collection[str] = ()) -> Json:
    """A session; `origin` is that of its pay page, whose URL only an open session has."""
    return {
        **_object(of.id, "checkout.session", of.created),
        "amount_subtotal": of.amount,
        "amount_total": of.amount,
        "cancel_url": of.cancel_url,
        "client_reference_id": of.client_reference_id,
        "currency": of.currency,
        "customer": None,
        "customer_details": None if of.customer_email is None else _payer(of),
        "customer_email": of.customer_email,
        "expires_at": of.expires_at,
        "invoice": None,
        "metadata": of.metadata,
        "mode": "payment",
        "payment_intent": _intent_in(of, expand),
        "payment_method_types": ["card"],
        "payment_status": of.payment_status,
        "setup_intent": None,
        "status": of.status,
        "subscription": None,
        "success_url": of.success_url,
        "total_details": {"amount_discount": 0, "amount_shipping": 0, "amount_tax": 0},
        "ui_mode": "hosted_page",
        "url": f"{origin}/pay/{of.id}" if origin is not None and of.status == "open" else None,
    }


def _intent_in(of: SandboxSession, expand: Collection[str]) -> object:
    payment = of.payment
    if payment is None or not expand:
        return None if payment is None else payment.intent_id
    shown = intent(of, payment)
    return {**shown, "latest_charge": charge(of, payment)} if CHARGE in expand else shown


def intent(of: SandboxSession, payment: SessionPayment) -> Json:
    return {
        **_object(payment.intent_id, "payment_intent", payment.created),
        "amount": of.amount,
        "amount_capturable": 0,
        "amount_received": of.amount if payment.is_settled else 0,
        "capture_method": "automatic",
        "currency": of.currency,
        "customer": None,
        "description": None,
        "latest_charge": payment.charge_id,
        "metadata": of.intent_metadata,
        "payment_method_types": ["card"],
        "receipt_email": None,
        "status": "succeeded" if payment.is_settled else "processing",
    }


def charge(of: SandboxSession, payment: SessionPayment) -> Json:
    return {
        **_object(payment.charge_id, "charge", payment.created),
        "amount": of.amount,
        "amount_captured": of.amount if payment.is_settled else 0,
        "amount_refunded": of.amount_refunded,
        "billing_details": _payer(of),
        "captured": payment.is_settled,
        "currency": of.currency,
        "customer": None,
        "disputed": of.dispute is not None,
        "metadata": of.intent_metadata,
        "paid": payment.is_settled,
        "payment_intent": payment.intent_id,
        "refunded": of.amount_refunded == of.amount,
        "status": "succeeded" if payment.is_settled else "pending",
    }


def charge_with_refunds(of: SandboxSession, payment: SessionPayment) -> Json:
    """A charge with its refunds, the newest first."""
    refunds: list[Json] = [refund(of, payment, each) for each in reversed(of.refunds)]
    shown = {
        "object": "list",
        "data": refunds,
        "has_more": False,
        "total_count": len(refunds),
        "url": f"/v1/charges/{payment.charge_id}/refunds",
    }
    return {**charge(of, payment), "refunds": shown}


def refund(of: SandboxSession, payment: SessionPayment, made: ChargeRefund) -> Json:
    shown = {
        **_object(made.id, "refund", made.created),
        "amount": made.amount,
        "balance_transaction": None,
        "charge": payment.charge_id,
        "currency": of.currency,
        "metadata": made.metadata,
        "payment_intent": payment.intent_id,
        "reason": made.reason,
        "receipt_number": None,
        "status": "succeeded",
    }
    # A refund is the only object here without a mode.
    del shown["livemode"]
    return shown


def dispute(of: SandboxSession, payment: SessionPayment, raised: ChargeDispute) -> Json:
    return {
        **_object(raised.id, "dispute", raised.created),
        "amount": raised.amount,
        "balance_transactions": [],
        "charge": payment.charge_id,
        "currency": of.currency,
        "is_charge_refundable": False,
        "metadata": {},
        "payment_intent": payment.intent_id,
        "reason": raised.reason,
        "status": "needs_response",
    }


def event(
    event_id: str, kind: str, about: Mapping[str, object], now: float, cause: Mapping[str, object]
) -> Json:
    """`cause` has the `id` and `idempotency_key` of the API request, each None without one."""
    return {
        **_object(event_id, "event", int(now)),
        "api_version": API_VERSION,
        "data": {"object": about},
        "pending_webhooks": 1,
        "request": cause,
        "type": kind,
    }


def _object(object_id: str, kind: str, created: int) -> Json:
    return {"id": object_id, "object": kind, "created": created, "livemode": False}


def _payer(of: SandboxSession) -> Json:
    return {"address": None, "email": of.customer_email, "name": None, "phone": None}

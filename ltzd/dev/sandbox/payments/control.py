"""The control endpoint of payments: pays, refunds or disputes a checkout session for a test."""

import time

from aiohttp import web

from ltzd.dev.sandbox.payments import changes as payment_changes
from ltzd.dev.sandbox.payments.changes import Change
from ltzd.dev.sandbox.payments.errors import ProviderError
from ltzd.dev.sandbox.payments.operations import PaymentOperations
from ltzd.dev.sandbox.payments.sessions import SandboxSession
from ltzd.dev.sandbox.requests import (
    BadInputError,
    Body,
    allow_only,
    control_body,
    json_reply,
    text_in,
    whole_number_in,
)

_KINDS = ("payment", "refund", "dispute")
_PAYMENT_STATUSES = ("paid", "unpaid")
_MAX_WAIT_SECONDS = 5.0
_MAX_CENTS = 99_999_999


class PaymentControl:
    def __init__(self, operations: PaymentOperations) -> None:
        self._operations = operations

    async def handle(self, request: web.Request) -> web.Response:
        """POST {"sessionId", "kind"?, "paymentStatus"?, "amount"?}.

        Answers after the first delivery attempt of each event, at most five seconds.
        """
        body = await control_body(request)
        allow_only(body, "sessionId", "kind", "paymentStatus", "amount")
        session_id = text_in(body, "sessionId")
        kind, status = (
            _one_of(body, "kind", _KINDS),
            _one_of(body, "paymentStatus", _PAYMENT_STATUSES),
        )
        amount = whole_number_in(body, "amount", 1, _MAX_CENTS) if "amount" in body else None
        _check_belongs(body, kind)
        session = self._operations.sessions.session(session_id)
        if session is None:
            return json_reply({"error": "No such session", "field": "sessionId"}, 404)
        try:
            change = self._change(session, kind, status, amount)
        except ProviderError as error:
            return json_reply({"error": error.message, "code": error.code or "refused"}, 409)
        return await self._reply(session, change)

    def _change(
        self, session: SandboxSession, kind: str, status: str, amount: int | None
    ) -> Change | None:
        now = time.time()
        match kind:
            case "refund":
                return payment_changes.refunded(session, now, amount)
            case "dispute":
                return payment_changes.disputed(session, now)
        if session.status == "complete" and session.payment_status in {
            status,
            "no_payment_required",
        }:
            return None
        if session.status == "complete" and status == "paid":
            return payment_changes.settled(session)
        return payment_changes.completed(session, now, is_paid=status == "paid")

    async def _reply(self, session: SandboxSession, change: Change | None) -> web.Response:
        """Apply the change; without one, send the events of the last change again."""
        if change is None:
            events = await self._operations.resend(session)
        else:
            session, events = change.session, await self._operations.apply(change)
        await self._operations.wait_first_attempts(events, _MAX_WAIT_SECONDS)
        sessions = self._operations.sessions
        return json_reply(
            {
                "sessionId": session.id,
                "status": session.status,
                "paymentStatus": session.payment_status,
                "paymentIntentId": session.payment.intent_id if session.payment else None,
                "events": [
                    {
                        "id": event.id,
                        "type": event.type,
                        "delivered": not sessions.is_undelivered(event),
                    }
                    for event in events
                ],
            }
        )


def _one_of(body: Body, name: str, choices: tuple[str, ...]) -> str:
    """Return the field's value; the first choice is the default."""
    value = body.get(name, choices[0])
    if not isinstance(value, str) or value not in choices:
        raise BadInputError(name, f"must be one of {', '.join(choices)}")
    return value


def _check_belongs(body: Body, kind: str) -> None:
    for name, of in (("paymentStatus", "payment"), ("amount", "refund")):
        if name in body and kind != of:
            raise BadInputError(name, f"belongs to the kind {of}")

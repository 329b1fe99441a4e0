"""A payment provider on loopback that follows the real provider's protocol.

The fake opens checkout sessions from forms, repeats its answer to an idempotency key, reads
sessions, pays and refunds them when a test says so, and signs events.
"""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import stripe
from aiohttp import web

from ltzd.providers.checkouts import PaymentsPolicy
from tests.support.services.web_servers import served_at

SECRET_KEY = "sk_test_of_this_machine"
SIGNING_SECRET = "whsec_of_this_machine"
WALLET_TEXT = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"

Json = dict[str, Any]


def metadata(**changes: str | None) -> dict[str, str]:
    """The metadata of a valid session of five dollars; a change to None removes the value."""
    values = {"wallet": WALLET_TEXT, "usd_amount": "5.00", "ltz_amount": "5000"} | changes
    return {name: text for name, text in values.items() if text is not None}


@dataclass
class FakePayments:
    """Each of `faults` fails one request: with a status, or with no answer at all ("silence")."""

    base: str = ""
    sessions: dict[str, Json] = field(default_factory=dict)
    answered: dict[str, tuple[Mapping[str, str], Json]] = field(default_factory=dict)
    forms: list[Mapping[str, str]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    retrieved: list[str] = field(default_factory=list)
    """Ids of the sessions that were requested."""
    faults: list[int | str] = field(default_factory=list)
    raw_answer: bytes | None = None
    """Replaces every answer."""
    creation_error: Mapping[str, str] | None = None
    """The error with which new sessions are refused."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def policy(self, **changes: Any) -> PaymentsPolicy:
        return PaymentsPolicy(self.base, SECRET_KEY, SIGNING_SECRET, **changes)

    def make(self, cents: int = 500, **changes: Any) -> str:
        """Makes a paid session with valid metadata and returns its id."""
        session_id = self._new(cents, metadata())
        self.pay(session_id)
        self.sessions[session_id] |= changes
        return session_id

    def _new(self, cents: int, metadata: Mapping[str, str]) -> str:
        session_id = f"cs_test_{next(self._numbers)}"
        self.sessions[session_id] = {
            "id": session_id,
            "object": "checkout.session",
            "mode": "payment",
            "status": "open",
            "payment_status": "unpaid",
            "currency": "usd",
            "amount_total": cents,
            "payment_intent": None,
            "metadata": dict(metadata),
            "url": f"{self.base}/pay/{session_id}",
        }
        return session_id

    def pay(self, session_id: str) -> str:
        """Returns the payment intent's id."""
        session, number = self.sessions[session_id], session_id.rpartition("_")[2]
        intent = {"id": f"pi_{number}", "object": "payment_intent"}
        charge = {"id": f"ch_{number}", "object": "charge", "amount_refunded": 0}
        session |= {"status": "complete", "payment_status": "paid", "url": None}
        session["payment_intent"] = intent | {"latest_charge": charge}
        return f"pi_{number}"

    def refund(self, session_id: str, cents: int) -> None:
        self.sessions[session_id]["payment_intent"]["latest_charge"]["amount_refunded"] += cents

    # --- its API --------------------------------------------------------------------------------

    async def create(self, request: web.Request) -> web.StreamResponse:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        self.headers.append(request.headers)
        failure = await self._injected_failure()
        if failure is not None:
            return failure
        if self.creation_error is not None:
            return _error(400, **self.creation_error)
        key = request.headers["Idempotency-Key"]
        if key not in self.answered:
            sent = {name[9:-1]: form[name] for name in form if name.startswith("metadata[")}
            cents = int(form["line_items[0][price_data][unit_amount]"])
            self.answered[key] = (form, self.sessions[self._new(cents, sent)])
        first, session = self.answered[key]
        if first != form:
            return _error(400, type="idempotency_error", message="with other parameters")
        return web.json_response(session, headers=_REQUEST_ID)

    async def retrieve(self, request: web.Request) -> web.StreamResponse:
        session_id = request.match_info["id"]
        self.retrieved.append(session_id)
        self.headers.append(request.headers)
        failure = await self._injected_failure()
        if failure is not None:
            return failure
        if session_id not in self.sessions:
            message = f"No such checkout.session: {session_id}"
            return _error(404, code="resource_missing", message=message, param="session")
        session = dict(self.sessions[session_id])
        intent = session["payment_intent"]
        if intent is not None and "payment_intent.latest_charge" not in request.query.values():
            session["payment_intent"] = intent["id"]
        return web.json_response(session, headers=_REQUEST_ID)

    async def _injected_failure(self) -> web.StreamResponse | None:
        if self.raw_answer is not None:
            return web.Response(body=self.raw_answer, content_type="application/json")
        fault = self.faults.pop(0) if self.faults else None
        if fault == "silence":
            await asyncio.Event().wait()
        if isinstance(fault, int):
            return _error(fault, type="api_error", message="ann@shop.example is in trouble")
        return None


def _error(status: int, **details: str) -> web.Response:
    error = {"type": "invalid_request_error"} | details
    return web.json_response({"error": error}, status=status, headers=_REQUEST_ID)


_REQUEST_ID = {"Request-Id": "req_1"}


@asynccontextmanager
async def payment_provider() -> AsyncIterator[FakePayments]:
    fake = FakePayments()
    application = web.Application()
    application.router.add_post("/v1/checkout/sessions", fake.create)
    application.router.add_get("/v1/checkout/sessions/{id}", fake.retrieve)
    async with served_at(application) as fake.base:
        yield fake


# --- its events ---------------------------------------------------------------------------------


def signed(
    event: object, *, age_seconds: float = 0.0, secret: str = SIGNING_SECRET
) -> tuple[bytes, str]:
    """Returns the event's body (a text stays as it is) and the signature's header."""
    body = event if isinstance(event, str) else json.dumps(event)
    at = int(time.time() - age_seconds)
    header = stripe.WebhookSignature.generate_signature_header(body, secret, at)
    return body.encode(), str(header)


def an_event(kind: str, about: Mapping[str, object]) -> Json:
    return {"id": "evt_1", "object": "event", "type": kind, "data": {"object": dict(about)}}


def a_session_event(
    session_id: str, kind: str = "checkout.session.completed", payment_status: str = "paid"
) -> Json:
    return an_event(kind, {"id": session_id, "payment_status": payment_status})


def a_refund(intent: str, cents: int = 500, id_: str = "re_1", **changes: object) -> Json:
    refund = {"id": id_, "payment_intent": intent, "amount": cents, "currency": "usd"}
    return an_event("refund.created", refund | {"status": "succeeded", "reason": None} | changes)


def a_failed_refund(intent: str, cents: int = 500, id_: str = "re_1", **changes: object) -> Json:
    refund = {"id": id_, "payment_intent": intent, "amount": cents, "currency": "usd"}
    return an_event("refund.failed", refund | {"status": "failed"} | changes)


def a_refunded_charge(intent: str, total: int = 500, **changes: object) -> Json:
    charge = {"id": "ch_1", "payment_intent": intent, "amount_refunded": total, "currency": "usd"}
    return an_event("charge.refunded", charge | changes)


def a_dispute(
    intent: str,
    cents: int = 500,
    id_: str = "dp_1",
    kind: str = "charge.dispute.created",
    **changes: object,
) -> Json:
    dispute = {"id": id_, "payment_intent": intent, "amount": cents, "currency": "usd"}
    dispute |= {"reason": "fraudulent", "status": "needs_response"}
    return an_event(kind, dispute | changes)

"""The payment provider's checkout sessions, in memory and in a journal.

A journal record has the changed session, its events and the reply to an idempotency key, so that a
kill -9 keeps all of them or none. A session may appear in an answer only after `saved`. Amounts
are in the currency's smallest unit (cents), times in Unix seconds.
"""

import time
from typing import Literal

import msgspec
from msgspec.structs import replace

from ltzd.dev.sandbox.journal import Journal, Record

Status = Literal["open", "complete", "expired"]


class LineItem(msgspec.Struct, frozen=True):
    name: str
    description: str | None
    quantity: int
    unit_amount: int


class SessionPayment(msgspec.Struct, frozen=True):
    intent_id: str
    charge_id: str
    created: int
    is_settled: bool
    """False until the money of a delayed method, such as a bank transfer, has arrived."""


class ChargeRefund(msgspec.Struct, frozen=True):
    id: str
    created: int
    amount: int
    reason: str | None
    metadata: dict[str, str]


class ChargeDispute(msgspec.Struct, frozen=True):
    id: str
    created: int
    amount: int
    reason: str


class SandboxSession(msgspec.Struct, frozen=True):
    id: str
    created: int
    expires_at: int
    currency: str
    lines: tuple[LineItem, ...]
    success_url: str
    cancel_url: str | None
    customer_email: str | None
    client_reference_id: str | None
    metadata: dict[str, str]
    intent_metadata: dict[str, str]
    status: Status = "open"
    payment: SessionPayment | None = None
    refunds: tuple[ChargeRefund, ...] = ()
    dispute: ChargeDispute | None = None

    @property
    def amount(self) -> int:
        return sum(line.unit_amount * line.quantity for line in self.lines)

    @property
    def amount_refunded(self) -> int:
        return sum(refund.amount for refund in self.refunds)

    @property
    def payment_status(self) -> str:
        if self.status == "complete" and self.amount == 0:
            return "no_payment_required"
        return "paid" if self.payment is not None and self.payment.is_settled else "unpaid"

    def at(self, now: float) -> "SandboxSession":
        is_over = self.status == "open" and now >= self.expires_at
        return replace(self, status="expired") if is_over else self


class SignedEvent(msgspec.Struct, frozen=True):
    id: str
    type: str
    body: str


class KeptReply(msgspec.Struct, frozen=True):
    """The answer to an idempotency key, with the fingerprint of its request."""

    key: str
    fingerprint: str
    content: dict[str, object]


class _Step(msgspec.Struct, frozen=True):
    session: SandboxSession
    events: tuple[SignedEvent, ...]
    reply: KeptReply | None


class SessionStore:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._sessions: dict[str, SandboxSession] = {}
        self._of_intents: dict[str, str] = {}
        self._sequences: dict[str, int] = {}
        self._replies: dict[str, tuple[KeptReply, int]] = {}
        self._completions: dict[str, tuple[SignedEvent, ...]] = {}
        self._undelivered: dict[str, SignedEvent] = {}

    def session(self, session_id: str) -> SandboxSession | None:
        session = self._sessions.get(session_id)
        return None if session is None else session.at(time.time())

    def session_of_intent(self, intent_id: str) -> SandboxSession | None:
        return self.session(self._of_intents.get(intent_id, ""))

    def newest(self, limit: int) -> list[SandboxSession]:
        return [
            session.at(time.time()) for session in list(self._sessions.values())[: -limit - 1 : -1]
        ]

    def reply(self, key: str) -> KeptReply | None:
        kept = self._replies.get(key)
        return None if kept is None else kept[0]

    def is_reply_saved(self, key: str) -> bool:
        return self._journal.is_durable(self._replies[key][1])

    def completion_events(self, session_id: str) -> tuple[SignedEvent, ...]:
        """The events of the session's newest completion or settlement."""
        return self._completions.get(session_id, ())

    def undelivered(self) -> list[SignedEvent]:
        return list(self._undelivered.values())

    def is_undelivered(self, event: SignedEvent) -> bool:
        return event.id in self._undelivered

    def store_change(
        self, session: SandboxSession, events: tuple[SignedEvent, ...], reply: KeptReply | None
    ) -> None:
        step = _Step(session, events, reply)
        sequence = self._journal.append({"kind": "step", **msgspec.to_builtins(step)})
        self._index(step, sequence)

    async def saved(self, session: SandboxSession) -> SandboxSession:
        """Return the session once it is on disk."""
        await self._journal.wait_durable(self._sequences[session.id])
        return session

    def mark_delivered(self, event: SignedEvent) -> None:
        """Record a delivery without waiting; after a kill -9 the event may be sent again."""
        if self._undelivered.pop(event.id, None) is not None:
            self._journal.append({"kind": "delivered", "event": event.id})

    def apply_record(self, record: Record) -> None:
        """Apply one record of the journal at the start."""
        if record["kind"] == "delivered":
            self._undelivered.pop(str(record["event"]), None)
        else:
            self._index(msgspec.convert(record, _Step), 0)

    def _index(self, step: _Step, sequence: int) -> None:
        session = step.session
        self._sessions[session.id] = session
        self._sequences[session.id] = sequence
        if session.payment is not None:
            self._of_intents[session.payment.intent_id] = session.id
        if step.reply is not None:
            self._replies[step.reply.key] = step.reply, sequence
        self._undelivered.update((event.id, event) for event in step.events)
        if step.events and step.events[0].type.startswith("checkout.session."):
            self._completions[session.id] = step.events

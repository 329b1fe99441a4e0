"""Applies changes to checkout sessions: stores a change first, then sends its events."""

import time

import msgspec

from ltzd.dev.sandbox.payments import objects
from ltzd.dev.sandbox.payments.changes import Change
from ltzd.dev.sandbox.payments.errors import new_id
from ltzd.dev.sandbox.payments.events import EventSender
from ltzd.dev.sandbox.payments.sessions import (
    KeptReply,
    SandboxSession,
    SessionStore,
    SignedEvent,
)

NO_REQUEST: dict[str, object] = {"id": None, "idempotency_key": None}
"""The cause of a change that no API request made."""


class PaymentOperations:
    def __init__(self, sessions: SessionStore, sender: EventSender) -> None:
        self.sessions = sessions
        self._sender = sender

    async def apply(
        self,
        change: Change,
        cause: dict[str, object] = NO_REQUEST,
        reply: KeptReply | None = None,
    ) -> tuple[SignedEvent, ...]:
        """Store the change and start sending its events; returns once the change is on disk.

        The session must not have changed since the caller computed the change: the caller awaits
        nothing in between.
        """
        events = tuple(self._event(kind, about, cause) for kind, about in change.events)
        self.sessions.store_change(change.session, events, reply)
        await self.sessions.saved(change.session)
        self._sender.send(events)
        return events

    async def resend(self, session: SandboxSession) -> tuple[SignedEvent, ...]:
        """Send the events of the session's payment again, as the provider may do."""
        await self.sessions.saved(session)
        events = self.sessions.completion_events(session.id)
        self._sender.send(events)
        return events

    async def wait_first_attempts(self, events: tuple[SignedEvent, ...], seconds: float) -> None:
        await self._sender.wait_first_attempts(events, seconds)

    def _event(self, kind: str, about: dict[str, object], cause: dict[str, object]) -> SignedEvent:
        event_id = new_id("evt")
        body = objects.event(event_id, kind, about, time.time(), cause)
        return SignedEvent(event_id, kind, msgspec.json.encode(body).decode())

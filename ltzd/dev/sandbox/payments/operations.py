"""Where a change of a checkout session becomes fact: kept first, then told."""

import msgspec

from ltzd.dev.sandbox.payments import objects
from ltzd.dev.sandbox.payments.changes import Change
from ltzd.dev.sandbox.payments.errors import new_id
from ltzd.dev.sandbox.payments.events import EventSender
from ltzd.dev.sandbox.payments.sessions import (
    CheckoutSession,
    KeptReply,
    SessionStore,
    SignedEvent,
)

NOBODY: dict[str, object] = {"id": None, "idempotency_key": None}
"""The cause of what no API request did."""


class PaymentOperations:
    def __init__(self, store: SessionStore, sender: EventSender) -> None:
        self.store = store
        self._sender = sender

    async def apply(
        self,
        change: Change,
        cause: dict[str, object] = NOBODY,
        reply: KeptReply | None = None,
    ) -> tuple[SignedEvent, ...]:
        """A kill -9 before it returns may undo all of it, and nobody has heard of it then."""
        events = tuple(self._event(kind, about, cause) for kind, about in change.news)
        # Nothing may be awaited between the caller's look at the session and this line.
        self.store.keep(change.session, events, reply)
        await self.store.saved(change.session)
        self._sender.send(events)
        return events

    async def resend(self, session: CheckoutSession) -> tuple[SignedEvent, ...]:
        """What told of the session's payment, once more; the provider repeats itself, too."""
        await self.store.saved(session)
        events = self.store.completion_events(session.id)
        self._sender.send(events)
        return events

    async def wait_first_attempts(self, events: tuple[SignedEvent, ...], seconds: float) -> None:
        await self._sender.wait_first_attempts(events, seconds)

    def _event(self, kind: str, about: dict[str, object], cause: dict[str, object]) -> SignedEvent:
        event_id = new_id("evt")
        body = objects.event(event_id, kind, about, self.store.now(), cause)
        return SignedEvent(event_id, kind, msgspec.json.encode(body).decode())

"""Where a change of a checkout session becomes fact: kept first, then told."""

import msgspec

from ltzd.dev.sandbox.payments import objects
from ltzd.dev.sandbox.payments.changes import Change
from ltzd.dev.sandbox.payments.errors import new_id
from ltzd.dev.sandbox.payments.events import EventSender
from ltzd.dev.sandbox.payments.sessions import (
    CheckoutSession,
    KeptReply,
    ProviderEvent,
    SessionStore,
)

NOBODY: dict[str, object] = {"id": None, "idempotency_key": None}
"""The cause of what no API request did."""


class PaymentOperations:
    def __init__(self, book: SessionStore, sender: EventSender) -> None:
        self.book = book
        self._sender = sender

    async def carry_out(
        self,
        change: Change,
        cause: dict[str, object] = NOBODY,
        reply: KeptReply | None = None,
    ) -> tuple[ProviderEvent, ...]:
        """A kill -9 before it returns may undo all of it, and nobody has heard of it then."""
        events = tuple(self._event(kind, about, cause) for kind, about in change.news)
        # Nothing may be awaited between the caller's look at the session and this line.
        self.book.keep(change.session, events, reply)
        await self.book.saved(change.session)
        self._sender.send(events)
        return events

    async def send_again(self, session: CheckoutSession) -> tuple[ProviderEvent, ...]:
        """What told of the session's payment, once more; the provider repeats itself, too."""
        await self.book.saved(session)
        events = self.book.completion(session.id)
        self._sender.send(events)
        return events

    async def first_attempts(self, events: tuple[ProviderEvent, ...], seconds: float) -> None:
        await self._sender.first_attempts(events, seconds)

    def _event(
        self, kind: str, about: dict[str, object], cause: dict[str, object]
    ) -> ProviderEvent:
        event_id = new_id("evt")
        body = objects.event(event_id, kind, about, self.book.now(), cause)
        return ProviderEvent(event_id, kind, msgspec.json.encode(body).decode())

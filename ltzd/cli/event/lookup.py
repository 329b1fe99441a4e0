"""The event that a person means, with all that became of it."""

from uuid import UUID

from ltzd.errors import NotFound
from ltzd.store.database import Connection
from ltzd.store.event_handler.history import EventHistory, history_of


async def find_event(connection: Connection, text: str) -> EventHistory:
    """Raises NotFound."""
    try:
        event_id = UUID(text)
    except ValueError:
        raise NotFound(
            f"{text!r} is no event id: those are UUIDs, as an event's answer gives them."
        ) from None
    found = await history_of(connection, event_id)
    if found is None:
        raise NotFound(f"There is no event {event_id}.")
    return found

"""Finds the event that a command's argument names, with its history."""

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
            f"{text!r} is not an event id. An event id is the UUID in the answer to the event."
        ) from None
    history = await history_of(connection, event_id)
    if history is None:
        raise NotFound(f"There is no event {event_id}.")
    return history

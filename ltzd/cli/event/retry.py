"""`ltzd event retry`: a failed reward waits for the mint lane again, under the same reference."""

import asyncio

from ltzd.cli.event.lookup import find_event
from ltzd.cli.output import tell
from ltzd.cli.targets import Place, connected
from ltzd.errors import Refused
from ltzd.store.operator import rewards


def retry(place: Place, event_id: str) -> None:
    asyncio.run(_retry(place, event_id))


async def _retry(place: Place, text: str) -> None:
    async with connected(place, "event retry") as connection:
        event = await find_event(connection, text)
        async with connection.transaction():
            is_queued = await rewards.retry(connection, event.id)
        if not is_queued:
            event = await find_event(connection, text)
            raise Refused(
                f"Event {event.id} is {event.status}: only a failed one goes back into the queue. "
                "Nothing changed."
            )
    tell(f"The reward of event {event.id} is in the queue again.")

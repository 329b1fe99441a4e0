"""`ltzd event retry`: puts a failed reward back into the mint queue, under the same reference."""

import asyncio

from ltzd.cli.event.lookup import find_event
from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.errors import Refused
from ltzd.store.operator import rewards


def retry(target: Target, event_id: str, *, as_json: bool) -> None:
    asyncio.run(_retry(target, event_id, as_json=as_json))


async def _retry(target: Target, text: str, *, as_json: bool) -> None:
    async with open_connection(target, "event retry") as connection:
        event = await find_event(connection, text)
        async with connection.transaction():
            is_queued = await rewards.retry(connection, event.id)
        if not is_queued:
            event = await find_event(connection, text)
            raise Refused(
                f"Event {event.id} is {event.status}: only a failed reward can be retried. "
                "Nothing changed."
            )
    if as_json:
        print_json({"eventId": str(event.id), "status": "queued"})
        return
    print_message(f"The reward of event {event.id} is in the queue again.")

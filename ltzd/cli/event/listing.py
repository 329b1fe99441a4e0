"""`ltzd event list` and `ltzd event tail`: accepted events, without e-mail addresses."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from rich.table import Column, Table
from rich.text import Text

from ltzd.cli.brand.lookup import find_brand
from ltzd.cli.output import (
    cut_text,
    page_width,
    plain_text,
    print_json,
    print_line,
    print_message,
    print_page,
)
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.times import parse_moment
from ltzd.store.database import Connection
from ltzd.store.event_handler import listing
from ltzd.store.event_handler.listing import EventSelection, EventStatus, ListedEvent
from ltzd.values import hex_of, iso

_WIDE = 100
"""From this width a table has the brands, too."""
_OVERLAP = timedelta(seconds=30)
"""An event may be committed so long after the time that it bears."""
_POLL_SECONDS = 1.0
_AT_ONCE = 10_000
_STYLES = {"failed": "bold red", "queued": "yellow", "published": "yellow"}


class EventFilter(msgspec.Struct, frozen=True):
    """The options of `event list` and `event tail` as typed."""

    brand: str | None = None
    status: EventStatus | None = None
    event_type: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int = 50

    async def selection(self, connection: Connection) -> EventSelection:
        """Raises NotFound and Refused."""
        now = datetime.now(UTC)
        return EventSelection(
            brand=None if self.brand is None else (await find_brand(connection, self.brand)).id,
            status=self.status,
            event_type=self.event_type,
            since=None if self.since is None else parse_moment("--since", self.since, now),
            until=None if self.until is None else parse_moment("--until", self.until, now),
            limit=self.limit,
        )


def list_events(target: Target, given: EventFilter, *, as_json: bool) -> None:
    events = asyncio.run(_list(target, given))
    if as_json:
        print_json({"events": list(map(event_object, events))})
    elif events:
        print_page(_table(events, page_width(), has_brand=given.brand is None))
    else:
        print_message("No event matches.")
    if given.status is not None and len(events) < given.limit:
        print_message(
            f"Among the newest {listing.SCANNED:,} events; --until looks at older events."
        )


async def _list(target: Target, given: EventFilter) -> list[ListedEvent]:
    async with open_connection(target, "event list") as connection:
        return await listing.list_events(connection, await given.selection(connection))


def tail(target: Target, given: EventFilter, *, as_json: bool) -> None:
    """Print a line for each event that is accepted from now on, until Ctrl-C or a closed pipe."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_tail(target, given, as_json=as_json))


async def _tail(target: Target, given: EventFilter, *, as_json: bool) -> None:
    async with open_connection(target, "event tail") as connection:
        selection = await given.selection(connection)
        print_message("Waiting for events; Ctrl-C ends this.")
        async for event in new_events(connection, selection):
            line = msgspec.json.encode(event_object(event)).decode() if as_json else line_of(event)
            if not print_line(line):
                return


async def new_events(
    connection: Connection, selection: EventSelection, poll_seconds: float = _POLL_SECONDS
) -> AsyncIterator[ListedEvent]:
    """Each event once, oldest first, from `since` or from now on. Never ends.

    An event's time is that of its database transaction's start, so the last `_OVERLAP` is read
    again each time.
    """
    begin = selection.since or await listing.database_time(connection)
    known: dict[UUID, datetime] = {}
    while True:
        now = await listing.database_time(connection)
        wanted = replace(selection, since=begin, limit=_AT_ONCE)
        for event in reversed(await listing.list_events(connection, wanted)):
            if event.id not in known:
                known[event.id] = event.created_at
                yield event
        begin = max(begin, now - _OVERLAP)
        known = {id_: at for id_, at in known.items() if at >= begin}
        await asyncio.sleep(poll_seconds)


def event_object(event: ListedEvent) -> dict[str, Any]:
    return {
        "eventId": str(event.id),
        "brandId": hex_of(event.brand_id),
        "brandName": event.brand_name,
        "eventType": event.event_type,
        "domain": event.domain,
        "rewardAmount": event.ltz,
        "status": event.status,
        "failure": event.failure,
        "createdAt": iso(event.created_at),
    }


def line_of(event: ListedEvent) -> str:
    """Within 80 columns for ordinary names, since the names come last."""
    at = event.created_at.astimezone(UTC)
    names = f"{plain_text(event.event_type)} {plain_text(event.brand_name)}"
    return f"{at:%H:%M:%S} {event.id} {event.ltz:>5} {names}"


def _table(events: Sequence[ListedEvent], width: int, *, has_brand: bool) -> Table:
    shows_brand = has_brand and width >= _WIDE
    table = Table(
        Column("event", no_wrap=True),
        Column("UTC", no_wrap=True),
        Column("status", no_wrap=True),
        Column("LTZ", justify="right", no_wrap=True),
        "type",
        *(["brand"] if shows_brand else []),
        box=None,
        padding=(0, 1, 0, 0),
    )
    for event in events:
        brand = [cut_text(event.brand_name)] if shows_brand else []
        table.add_row(
            str(event.id),
            f"{event.created_at.astimezone(UTC):%m-%d %H:%M}",
            Text(event.status, style=_STYLES.get(event.status, "")),
            f"{event.ltz:,}",
            cut_text(event.event_type),
            *brand,
        )
    return table

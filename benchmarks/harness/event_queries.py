"""The hot statements over events, each with the most pages that it may touch.

The bounds grow with the partitions, of which `event_rows.fill` makes about fifteen: a statement
that names a brand and no id asks the index of each.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast
from uuid import UUID

from benchmarks.harness import event_rows
from benchmarks.harness.hot_queries import HotQuery, Sample
from ltzd.rules.event_handler.claims import ClaimRecord
from ltzd.store.event_handler import events, partitions
from ltzd.store.event_handler.events import EventRow, NewEvent
from ltzd.store.event_handler.listing import EventSelection, list_events
from ltzd.store.retention.expiry import RetentionPolicy, expire
from ltzd.store.retention.refused_rows import RefusedRows
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.webhooks import bodies
from ltzd.store.webhooks.queue import DueWebhook

Connection = Any
"""A connection, or a stand-in that explains the statements."""

NEW_EVENTS: Final = 20
_CLEARED: Final = 20
_NO_ERASED: Final = cast("ErasedAddresses", None)
"""Users' addresses are not asked for."""


def _id_at(sample: Sample, part: float) -> UUID:
    return event_rows.id_of(int(sample.rows * part), sample.rows)


def _time_at(sample: Sample, part: float) -> datetime:
    seconds = event_rows.seconds_of(int(sample.rows * part), sample.rows)
    return datetime.fromtimestamp(seconds, UTC)


def new_events(sample: Sample) -> list[NewEvent]:
    """Events of known users."""
    return [_new_event(sample, number) for number in range(NEW_EVENTS)]


async def _record(connection: Connection, sample: Sample) -> None:
    """Inserts events in one statement, as the writer does."""
    assert len(await events.insert(connection, new_events(sample))) == NEW_EVENTS


async def _find(connection: Connection, sample: Sample) -> None:
    for part in (0.1, 0.9):
        assert await events.find(connection, _id_at(sample, part)) is not None


async def _find_unknown(connection: Connection, _sample: Sample) -> None:
    assert await events.find(connection, UUID(int=7)) is None


async def _list_newest(connection: Connection, _sample: Sample) -> None:
    selection = EventSelection(brand=event_rows.brand(3))
    assert len(await list_events(connection, selection)) == selection.limit


async def _list_all_brands(connection: Connection, _sample: Sample) -> None:
    assert len(await list_events(connection, EventSelection())) == EventSelection().limit


async def _list_a_day(connection: Connection, sample: Sample) -> None:
    since = _time_at(sample, 0.5)
    selection = EventSelection(
        brand=event_rows.brand(3), since=since, until=since + timedelta(days=1), limit=5
    )
    await list_events(connection, selection)


async def _render(connection: Connection, sample: Sample) -> None:
    subjects = [_id_at(sample, part / 10) for part in range(10)]
    brand, now = event_rows.brand(0), _time_at(sample, 1)
    webhooks = [DueWebhook(id_, brand, "", 1, "ltz_distributed", id_, 1, now) for id_ in subjects]
    await bodies.render(connection, webhooks)


async def _expire(connection: Connection, _sample: Sample) -> None:
    policy = RetentionPolicy(event_addresses=timedelta(days=1))
    done = await expire(connection, policy, _NO_ERASED, RefusedRows(), _CLEARED)
    assert done >= _CLEARED * event_rows.BRANDS


def _new_event(sample: Sample, number: int) -> NewEvent:
    brand = event_rows.brand(number)
    email = f"user{number * sample.rows // 10 // NEW_EVENTS}@mail.example"
    row = EventRow(
        id=event_rows.id_of(sample.rows - 1 - number, sample.rows + 1),
        brand_id=brand,
        event_type="form_submit",
        email=email,
        user_id=UUID(int=number),
        domain="shop.example",
        source=None,
        user_identifier=None,
        metadata={},
        ltz=5,
        wallet=event_rows.brand(1),
    )
    claim = ClaimRecord(1, row.id, _time_at(sample, 1))
    return NewEvent(row, (brand, "form_submit", email), claim, None, maximum=None)


EVENT_QUERIES: Final = (
    HotQuery("twenty events with their claims", _record, 2_000),
    HotQuery("the partitions of events", lambda c, s: partitions.ensure(c, s.rows), 400),
    HotQuery("two events by their ids", _find),
    HotQuery("an unknown event", _find_unknown),
    HotQuery("a brand's newest events", _list_newest, 600),
    HotQuery("the newest events of all brands", _list_all_brands, 2_000),
    HotQuery("a brand's events of a day", _list_a_day, 200),
    HotQuery("the bodies of ten webhooks", _render, 200),
    HotQuery("addresses of two hundred old events", _expire, 8_000),
)

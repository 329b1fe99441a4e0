"""The writer of events: its announcements, and a global maximum that is set meanwhile."""

import asyncio
from uuid import uuid4

import pytest

from ltzd.actions.event_handler.batch_decision import EventCheck, PreparedEvent
from ltzd.actions.event_handler.writer import EventWriter
from ltzd.errors import LtzdError
from ltzd.rules.brands.configuration import Brand
from ltzd.store.database import Pool
from ltzd.store.event_handler.events import EventRow
from ltzd.store.users import users
from ltzd.store.users.users import User
from ltzd.store.wakeups import REWARDS, WakeupHub
from tests.support.rows.core import BRAND, a_wallet, running, value
from tests.support.rows.notifications import announced
from tests.support.surfaces.event_action import a_brand, kinds

TYPE = "account_creation"


def under(maximum: int | None) -> Brand:
    return a_brand({"type": TYPE, "max_total_claims": maximum})  # type: ignore[arg-type]


def a_claim(name: str, brand: Brand, ltz: int = 100) -> PreparedEvent:
    """An event that was accepted under this configuration of the brand."""
    email = f"{name}@shop.example"
    rule = brand.rule_of(TYPE)
    assert rule is not None
    user = User(users.user_id(email, email), email, email, a_wallet(1))
    event = EventRow(
        id=uuid4(),
        brand_id=BRAND,
        event_type=TYPE,
        email=email,
        user_id=user.id,
        domain="shop.example",
        source=None,
        user_identifier=None,
        metadata={},
        ltz=ltz,
        wallet=user.wallet,
    )
    check = EventCheck((BRAND, TYPE, email), brand, rule, ltz, False, False, None)
    return PreparedEvent(event, user, False, check)


class RecordingHub(WakeupHub):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.announcements: list[str] = []

    def announce(self, channel: str) -> None:
        self.announcements.append(channel)


@pytest.fixture
def writer(pool: Pool, database_url: str) -> EventWriter:
    return EventWriter(pool, WakeupHub(database_url), {})


async def write(writer: EventWriter, *claims: PreparedEvent) -> list[object]:
    async with running(writer.run()), asyncio.timeout(5):
        return await asyncio.gather(*map(writer.write, claims), return_exceptions=True)


async def test_other_processes_learn_of_events_after_their_commit(
    pool: Pool, database_url: str
) -> None:
    hub = WakeupHub(database_url)
    async with announced(database_url, hub, REWARDS):
        await write(EventWriter(pool, hub, {}), a_claim("ann", under(None)))


async def test_events_that_earn_nothing_wake_no_mint_lane(pool: Pool, database_url: str) -> None:
    hub = RecordingHub(database_url)
    writer = EventWriter(pool, hub, {})

    await write(writer, a_claim("ann", under(None), ltz=0))
    assert hub.announcements == []

    await write(writer, a_claim("bob", under(None), ltz=0), a_claim("cid", under(None)))
    assert hub.announcements == [REWARDS]


async def test_events_decided_before_and_after_a_maximum_was_set_can_share_a_batch(
    pool: Pool, writer: EventWriter
) -> None:
    for name in ("ann", "bob"):
        await write(writer, a_claim(name, under(3)))

    outcomes = await write(writer, a_claim("cid", under(None)), a_claim("dan", under(3)))

    assert not [outcome for outcome in outcomes if isinstance(outcome, TimeoutError)]
    assert [isinstance(outcome, LtzdError) for outcome in outcomes] == [False, False]
    assert await value(pool, "SELECT claims FROM event_claim_totals") == 3


async def test_late_events_decided_before_a_maximum_was_set_do_not_block_later_ones(
    pool: Pool, writer: EventWriter
) -> None:
    await write(writer, a_claim("ann", under(3)))
    await write(writer, a_claim("late", under(None)), a_claim("later", under(None)))

    outcomes = await write(writer, *(a_claim(name, under(3)) for name in ("bob", "cid", "dan")))

    assert kinds(outcomes) == {"RecordedEvent": 2, "MaxClaimsReached": 1}  # type: ignore[arg-type]
    assert await value(pool, "SELECT claims FROM event_claim_totals") == 3

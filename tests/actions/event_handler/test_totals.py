"""The writer of events: its announcements, two batches at once, and a maximum set meanwhile."""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import pytest
from asyncpg.transaction import Transaction

from ltzd.actions.event_handler.batch_decision import (
    EventCheck,
    PreparedEvent,
    RecordedEvent,
    SignedNonce,
)
from ltzd.actions.event_handler.policy import EventPolicy
from ltzd.actions.event_handler.writer import EventWriter
from ltzd.errors import LtzdError
from ltzd.rules.brands.configuration import Brand, EventRule
from ltzd.store.database import Connection, Pool, session
from ltzd.store.event_handler.events import EventRow
from ltzd.store.users import users
from ltzd.store.users.users import User
from ltzd.store.wakeups import REWARDS, WakeupHub
from tests.support.rows.core import BRAND, a_wallet, running, value
from tests.support.rows.notifications import announced
from tests.support.surfaces.event_action import a_brand, kinds
from tests.support.waiting import until

TYPE = "account_creation"
OTHER_TYPE = "complete_survey"
ONE_A_BATCH = EventPolicy(max_batch=1)
WAITS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


def under(maximum: int | None) -> Brand:
    return a_brand(EventRule(type=TYPE, max_total_claims=maximum), EventRule(type=OTHER_TYPE))


def a_claim(
    name: str,
    brand: Brand,
    ltz: int = 100,
    signed: SignedNonce | None = None,
    of_type: str = TYPE,
) -> PreparedEvent:
    """An event that was accepted under this configuration of the brand."""
    email = f"{name}@shop.example"
    rule = brand.rule_of(of_type)
    assert rule is not None
    user = User(users.user_id(email, email), email, email, a_wallet(1))
    event = EventRow(
        id=uuid4(),
        brand_id=BRAND,
        event_type=of_type,
        email=email,
        user_id=user.id,
        domain="shop.example",
        source=None,
        user_identifier=None,
        metadata={},
        ltz=ltz,
        wallet=user.wallet,
    )
    check = EventCheck((BRAND, of_type, email), brand, rule, ltz, False, False, signed)
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
    async with running(writer.run()), asyncio.timeout(20):
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


async def test_events_of_a_claim_whose_row_is_locked_hold_up_nobody_elses(
    pool: Pool, writer: EventWriter
) -> None:
    """As a transaction of another process may lock it."""
    async with running(writer.run()), session(pool) as other:
        lock = await _locked_claim(other, "ann")
        held_up = [a_claim("ann", under(None)) for _ in range(2)]
        waiting = await _others_are_written_beside(held_up, writer, pool)
        await lock.rollback()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert kinds(outcomes) == {"RecordedEvent": 1, "DuplicateEvent": 1}


async def test_events_under_a_limit_whose_row_is_locked_hold_up_no_events_without_a_limit(
    pool: Pool, writer: EventWriter
) -> None:
    async with running(writer.run()), session(pool) as other:
        lock = other.transaction()
        await lock.start()
        await other.execute(
            "INSERT INTO event_claim_totals (brand_id, event_type, claims, maximum) "
            "VALUES ($1, $2, 0, 9)",
            BRAND,
            TYPE,
        )
        held_up = [a_claim(name, under(9)) for name in ("ann", "dan")]
        waiting = await _others_are_written_beside(held_up, writer, pool)
        await lock.rollback()
        outcomes = await asyncio.gather(*waiting)
    assert kinds(outcomes) == {"RecordedEvent": 2}


async def _locked_claim(other: Connection, name: str) -> Transaction:
    """A transaction that has locked the row of this user's claim."""
    lock = other.transaction()
    await lock.start()
    await other.execute(
        "INSERT INTO event_claims (brand_id, event_type, email_key, claims, last_event_id, "
        "last_event_at) VALUES ($1, $2, $3, 1, $4, now())",
        BRAND,
        TYPE,
        f"{name}@shop.example",
        uuid4(),
    )
    return lock


async def _others_are_written_beside(
    held_up: Sequence[PreparedEvent], writer: EventWriter, pool: Pool
) -> list[asyncio.Task[RecordedEvent]]:
    """Writes events that wait for a lock, and then others' events, which must not wait."""
    waiting = []
    for event in held_up:
        waiting.append(asyncio.create_task(writer.write(event)))
        await until(lambda: value(pool, WAITS))
    async with asyncio.timeout(20):
        for name in ("bob", "cid"):
            await writer.write(a_claim(name, under(None)))
    assert not any(task.done() for task in waiting)
    return waiting


async def test_of_events_of_one_claim_the_first_is_recorded_whatever_the_batches_are(
    pool: Pool, database_url: str
) -> None:
    writer = EventWriter(pool, WakeupHub(database_url), {}, ONE_A_BATCH)
    names = ["ann", "bob", "ann", "cid", "ann", "bob", "ann"]

    outcomes = await write(writer, *(a_claim(name, under(None)) for name in names))

    recorded = [isinstance(outcome, RecordedEvent) for outcome in outcomes]
    assert recorded == [True, True, False, True, False, False, False]


async def test_of_events_that_share_a_limit_the_first_is_recorded_though_its_row_is_locked(
    pool: Pool, database_url: str
) -> None:
    writer = EventWriter(pool, WakeupHub(database_url), {}, ONE_A_BATCH)
    async with running(writer.run()), session(pool) as other:
        lock = await _locked_claim(other, "ann")
        in_order = [a_claim(name, under(1)) for name in ("ann", "dan")]
        waiting = await _others_are_written_beside(in_order, writer, pool)
        await lock.rollback()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["RecordedEvent", "MaxClaimsReached"]


async def test_a_nonce_is_used_once_by_events_of_two_batches_at_once(
    pool: Pool, database_url: str
) -> None:
    writer = EventWriter(pool, WakeupHub(database_url), {}, ONE_A_BATCH)

    for round_ in range(10):
        replays = (
            a_claim(f"{name}-{round_}", under(None), signed=SignedNonce(f"nonce-{round_}", uuid4()))
            for name in ("ann", "bob", "cid")
        )
        outcomes = await write(writer, *replays)
        assert kinds(outcomes) == {"RecordedEvent": 1, "SignatureRefused": 2}
    assert await value(pool, "SELECT count(*) FROM events") == 10


async def test_the_user_of_two_new_claims_at_once_is_made_once(
    pool: Pool, database_url: str
) -> None:
    writer = EventWriter(pool, WakeupHub(database_url), {}, ONE_A_BATCH)

    for round_ in range(10):
        claims = [
            a_claim(f"ann-{round_}", under(None), of_type=name) for name in (TYPE, OTHER_TYPE)
        ]
        outcomes = await write(writer, *claims)
        assert kinds(outcomes) == {"RecordedEvent": 2}
        created = [o.wallet_created for o in outcomes if isinstance(o, RecordedEvent)]
        assert sorted(created) == [False, True]
    assert await value(pool, "SELECT count(*) FROM users") == 10
    assert await value(pool, "SELECT count(DISTINCT user_id) FROM events") == 10


async def test_events_decided_before_and_after_a_maximum_was_set_can_be_written_at_once(
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

    assert kinds(outcomes) == {"RecordedEvent": 2, "MaxClaimsReached": 1}
    assert await value(pool, "SELECT claims FROM event_claim_totals") == 3

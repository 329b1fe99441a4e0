"""An event is written atomically with its dependent rows if its claim is unchanged."""

import asyncio
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec import structs
from msgspec.structs import replace

from ltzd.rules.event_handler.claims import ClaimRecord
from ltzd.store.database import Pool, session, transaction
from ltzd.store.event_handler import events
from ltzd.store.event_handler.events import ClaimKey, ClaimQuery, ClaimSnapshot, EventRow, NewEvent
from ltzd.store.users import users
from tests.support.rows.core import BRAND, a_hash, a_wallet, value
from tests.support.rows.notifications import notifications

EMAIL = "Ann@shop.example"
SUBJECT = "did:privy:ann"


def a_key(email: str = EMAIL, event_type: str = "account_creation") -> ClaimKey:
    return (BRAND, event_type, users.email_key(email))


KEY = a_key()


def a_new_event(
    snapshot: ClaimSnapshot, key: ClaimKey = KEY, maximum: int | None = None, **changes: object
) -> NewEvent:
    """The next event of a claim, decided on this snapshot."""
    claims = snapshot.claims.get(key, ClaimRecord()).claims
    row = EventRow(
        id=uuid4(),
        brand_id=BRAND,
        event_type=key[1],
        email=EMAIL,
        user_id=users.user_id(SUBJECT, key[2]),
        domain="shop.example",
        source=None,
        user_identifier=None,
        metadata={"channel_id": "c", "n": [1, {"deep": "ü"}]},
        ltz=100,
        wallet=a_wallet(1),
    )
    row = structs.replace(row, **changes)
    return NewEvent(row, key, ClaimRecord(claims + 1, row.id, snapshot.now), SUBJECT, maximum)


async def read_snapshot(pool: Pool, *keys: ClaimKey) -> ClaimSnapshot:
    async with session(pool) as connection:
        return await events.read_snapshot(connection, [ClaimQuery(key, key[:2]) for key in keys])


async def read_claim(pool: Pool, key: ClaimKey) -> ClaimSnapshot:
    """As for a type without a maximum."""
    async with session(pool) as connection:
        return await events.read_snapshot(connection, [ClaimQuery(key)])


async def write(pool: Pool, *new_events: NewEvent) -> dict[ClaimKey, bool]:
    """Returns the claims that were won, and for each whether its user is new."""
    async with session(pool) as connection:
        won = await events.insert(connection, new_events)
    return {key: event.is_new_user for key, event in won.items()}


async def counts(pool: Pool) -> tuple[int, int, int, int]:
    """Returns the numbers of events, rewards, users and claims."""
    async with session(pool) as connection:
        row = await connection.fetchrow(
            "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM rewards), "
            "(SELECT count(*) FROM users), (SELECT coalesce(sum(claims), 0) FROM event_claims)"
        )
    return tuple(map(int, row))  # type: ignore[return-value]


async def test_a_new_claim_snapshot_is_empty(pool: Pool) -> None:
    snapshot = await read_snapshot(pool, KEY)

    assert (snapshot.claims, snapshot.totals) == ({}, {KEY[:2]: 0})
    assert snapshot.now.tzinfo is not None


async def test_a_written_event_is_in_the_next_snapshot(pool: Pool) -> None:
    new = a_new_event(await read_snapshot(pool, KEY))

    assert await write(pool, new) == {KEY: True}

    assert (await read_snapshot(pool, KEY)).claims == {KEY: new.claim}
    async with session(pool) as connection:
        row = await connection.fetchrow("SELECT id, email, metadata, ltz, user_id FROM events")
        assert tuple(row) == (
            new.event.id,
            EMAIL,
            new.event.metadata,
            100,
            new.event.user_id,
        )
        reward = await connection.fetchrow("SELECT id, kind, wallet, ltz, seq FROM rewards")
        assert tuple(reward) == (new.event.id, events.EVENT_REWARD, a_wallet(1), 100, None)
        user = users.User(new.event.user_id, KEY[2], SUBJECT, a_wallet(1))
        assert await users.find(connection, [KEY[2]]) == {KEY[2]: user}


async def test_an_event_without_a_reward_queues_no_mint(pool: Pool) -> None:
    snapshot = await read_snapshot(pool, KEY, FORM)
    something = a_new_event(snapshot, FORM, ltz=1)

    await write(pool, a_new_event(snapshot, ltz=0), something)

    assert await counts(pool) == (2, 1, 1, 2)
    assert await value(pool, "SELECT id FROM rewards") == something.event.id


async def test_an_event_whose_claim_changed_since_the_snapshot_is_not_written(
    pool: Pool,
) -> None:
    other = a_key("bob@shop.example")
    snapshot = await read_snapshot(pool, KEY, other)
    await write(pool, a_new_event(snapshot))

    late, untouched = a_new_event(snapshot), a_new_event(snapshot, other)
    assert await write(pool, late, untouched) == {other: True}

    assert await value(pool, "SELECT count(*) FROM events WHERE id = $1", late.event.id) == 0
    assert await counts(pool) == (2, 2, 2, 2)


async def test_a_second_event_of_a_user_reports_no_new_user(pool: Pool) -> None:
    await write(pool, a_new_event(await read_snapshot(pool, KEY)))
    again = a_new_event(await read_snapshot(pool, KEY))
    known = structs.replace(
        a_new_event(await read_snapshot(pool, FORM), FORM), identity_subject=None
    )

    assert await write(pool, again) == {KEY: False}
    assert await write(pool, known) == {FORM: False}
    assert (await counts(pool))[2] == 1


FORM = a_key(event_type="form_submit")


async def test_a_new_user_of_two_events_in_one_batch_is_inserted_once(pool: Pool) -> None:
    """Both events report a new user, since either may be the one that is announced."""
    snapshot = await read_snapshot(pool, KEY, FORM)

    won = await write(pool, a_new_event(snapshot, KEY), a_new_event(snapshot, FORM))

    assert won == {KEY: True, FORM: True}
    assert await counts(pool) == (2, 2, 1, 2)


async def test_a_user_whose_claim_was_lost_is_not_inserted(pool: Pool) -> None:
    snapshot = await read_snapshot(pool, KEY)
    await write(pool, a_new_event(snapshot))
    async with session(pool) as connection:
        await connection.execute("DELETE FROM users")

    assert await write(pool, a_new_event(snapshot)) == {}
    assert await counts(pool) == (1, 1, 0, 1)


async def test_an_event_of_a_known_user_without_a_row_is_not_written(pool: Pool) -> None:
    """The user's address was erased after the event was prepared."""
    known = structs.replace(a_new_event(await read_snapshot(pool, KEY)), identity_subject=None)

    assert await write(pool, known) == {}
    assert await counts(pool) == (0, 0, 0, 0)


async def test_only_the_next_version_of_a_claim_is_written(pool: Pool) -> None:
    for _ in range(2):
        await write(pool, a_new_event(await read_snapshot(pool, KEY)))
    snapshot = await read_snapshot(pool, KEY)
    right = a_new_event(snapshot)
    assert right.claim.claims == 3

    for version in (1, 2, 4, 5):
        wrong = structs.replace(right, claim=replace(right.claim, claims=version))
        assert await write(pool, wrong) == {}, version

    assert (await read_snapshot(pool, KEY)).claims == snapshot.claims
    assert await counts(pool) == (2, 2, 1, 2)
    assert await write(pool, right) == {KEY: False}


async def test_a_concurrent_claim_waits_for_the_first_to_commit_or_roll_back(pool: Pool) -> None:
    """The second writer waits for the first one, and loses if that commits."""
    snapshot = await read_snapshot(pool, KEY)
    async with session(pool) as connection:
        pending = connection.transaction()
        await pending.start()
        assert list(await events.insert(connection, [a_new_event(snapshot)])) == [KEY]
        second = asyncio.create_task(write(pool, a_new_event(snapshot)))
        await asyncio.wait([second], timeout=0.1)
        assert not second.done()
        await pending.rollback()
    assert await second == {KEY: True}
    assert await counts(pool) == (1, 1, 1, 1)


async def test_of_concurrent_writers_with_one_snapshot_one_wins(pool: Pool) -> None:
    snapshot = await read_snapshot(pool, KEY)
    won = await asyncio.gather(*(write(pool, a_new_event(snapshot)) for _ in range(20)))

    assert sorted(map(len, won)) == [0] * 19 + [1]
    assert await counts(pool) == (1, 1, 1, 1)


async def test_of_concurrent_first_events_of_a_user_one_inserts_him(pool: Pool) -> None:
    keys = [a_key(event_type=f"type_{number}") for number in range(20)]
    snapshot = await read_snapshot(pool, *keys)
    won = await asyncio.gather(*(write(pool, a_new_event(snapshot, key)) for key in keys))

    made = [is_new for each in won for is_new in each.values()]
    assert sorted(made) == [False] * 19 + [True]
    assert await counts(pool) == (20, 20, 1, 20)


async def test_writers_of_the_same_claims_in_any_order_do_not_deadlock(pool: Pool) -> None:
    keys = [a_key(f"{number}@shop.example") for number in range(30)]

    async def write_some(number: int) -> int:
        snapshot = await read_snapshot(pool, *keys)
        new_events = [a_new_event(snapshot, key, maximum=10_000) for key in keys]
        return len(await write(pool, *(new_events[::-1] if number % 2 else new_events)))

    won = await asyncio.gather(*map(write_some, range(12)))

    assert sum(won) == (await counts(pool))[0] == (await read_snapshot(pool, *keys)).totals[KEY[:2]]


async def test_a_claim_total_never_exceeds_its_maximum(pool: Pool) -> None:
    keys = [a_key(f"{number}@shop.example") for number in range(30)]
    snapshot = await read_snapshot(pool, *keys)

    async def write_one(key: ClaimKey) -> int:
        return len(await write(pool, a_new_event(snapshot, key, maximum=7)))

    won = await asyncio.gather(*map(write_one, keys))

    assert sum(won) == 7
    assert await counts(pool) == (7, 7, 7, 7)
    assert (await read_snapshot(pool, KEY)).totals == {KEY[:2]: 7}


async def test_a_batch_that_would_exceed_the_maximum_writes_nothing(pool: Pool) -> None:
    keys = [a_key(f"{number}@shop.example") for number in range(3)]
    snapshot = await read_snapshot(pool, *keys)
    free = a_new_event(snapshot, a_key(event_type="form_submit"))

    assert await write(pool, free, *(a_new_event(snapshot, key, maximum=2) for key in keys)) == {}
    assert await counts(pool) == (0, 0, 0, 0)


async def test_a_missing_claim_total_is_counted_from_the_claims(pool: Pool) -> None:
    """Claims from before the brand set a maximum also count."""
    for number in range(3):
        key = a_key(f"{number}@shop.example")
        await write(pool, a_new_event(await read_claim(pool, key), key))
    assert (await read_snapshot(pool, KEY)).totals == {KEY[:2]: 3}

    snapshot = await read_snapshot(pool, KEY)
    assert await write(pool, a_new_event(snapshot, maximum=3)) == {}
    assert await write(pool, a_new_event(snapshot, maximum=4)) == {KEY: True}
    assert await value(pool, "SELECT claims FROM event_claim_totals") == 4


async def test_a_raised_maximum_admits_more_events_and_a_lowered_one_none(pool: Pool) -> None:
    async def claim(name: str, maximum: int) -> bool:
        key = a_key(f"{name}@shop.example")
        new = a_new_event(await read_snapshot(pool, key), key, maximum=maximum)
        return await write(pool, new) == {key: True}

    assert await claim("a", 2)
    assert await claim("b", 2)
    assert not await claim("c", 2)
    assert await claim("c", 3)
    assert not await claim("d", 1)
    assert await value(pool, "SELECT maximum FROM event_claim_totals") == 3, (
        "a refused event changes nothing"
    )
    assert await claim("d", 9)
    assert (await read_snapshot(pool, KEY)).totals == {KEY[:2]: 4}
    assert (await counts(pool))[0] == 4


async def test_events_decided_on_different_maxima_are_written_under_the_larger(
    pool: Pool,
) -> None:
    """A new configuration was applied between the two decisions."""
    keys = [a_key(f"{number}@shop.example") for number in range(2)]
    snapshot = await read_snapshot(pool, *keys)
    new_events = [a_new_event(snapshot, key, maximum=2 - n) for n, key in enumerate(keys)]

    assert len(await write(pool, *new_events)) == 2
    assert (await read_snapshot(pool, KEY)).totals == {KEY[:2]: 2}


async def test_maxima_are_separate_for_each_type_and_brand(pool: Pool) -> None:
    elsewhere = (a_wallet(0xB2), *KEY[1:])
    keys = [KEY, FORM, elsewhere]
    snapshot = await read_snapshot(pool, *keys)

    assert len(await write(pool, *(a_new_event(snapshot, key, maximum=1) for key in keys))) == 3
    assert (await read_snapshot(pool, *keys)).totals == {key[:2]: 1 for key in keys}


async def test_a_lost_claim_is_not_counted(pool: Pool) -> None:
    other = a_key("bob@shop.example")
    snapshot = await read_snapshot(pool, KEY, other)
    await write(pool, a_new_event(snapshot, maximum=2))

    both = [a_new_event(snapshot, key, maximum=2) for key in (KEY, other)]
    assert await write(pool, *both) == {other: True}
    assert (await read_snapshot(pool, KEY)).totals == {KEY[:2]: 2}


async def test_a_type_without_a_maximum_keeps_no_total(pool: Pool) -> None:
    await write(pool, a_new_event(await read_claim(pool, KEY)))

    assert await value(pool, "SELECT count(*) FROM event_claim_totals") == 0


async def test_a_write_carries_no_notification(pool: Pool, database_url: str) -> None:
    """A commit that notifies would hold up those of all other processes until it is durable."""
    snapshot = await read_snapshot(pool, KEY, FORM)
    async with notifications(database_url) as payloads:
        await write(pool, a_new_event(snapshot), a_new_event(snapshot, FORM))
    assert payloads == []


async def test_a_write_without_any_accepted_event_returns_none(pool: Pool) -> None:
    snapshot = await read_snapshot(pool, KEY, FORM)
    await write(pool, a_new_event(snapshot, maximum=1))
    full = a_key("bob@shop.example")

    assert await write(pool, a_new_event(snapshot)) == {}
    assert await write(pool, a_new_event(await read_snapshot(pool, full), full, maximum=1)) == {}


async def test_a_nul_in_metadata_fails_only_its_own_write(pool: Pool) -> None:
    """PostgreSQL stores no NUL; the HTTP layer removes it, and a batch isolates other failures."""
    snapshot = await read_snapshot(pool, KEY)
    poisons: list[dict[str, object]] = [{"k": "nul \x00"}, {"\x00": 1}, {"a": [{"b\x00": ""}]}]
    for metadata in poisons:
        with pytest.raises(asyncpg.PostgresError):
            await write(pool, a_new_event(snapshot, metadata=metadata))
    assert await counts(pool) == (0, 0, 0, 0)
    assert await write(pool, a_new_event(snapshot)) == {KEY: True}


async def test_a_found_event_has_the_status_of_its_reward(pool: Pool) -> None:
    new = a_new_event(await read_snapshot(pool, KEY))
    await write(pool, new)

    async def stored() -> tuple[object, ...]:
        async with session(pool) as connection:
            stored_event = await events.find(connection, new.event.id)
        assert stored_event is not None
        assert (stored_event.ltz, stored_event.wallet) == (100, a_wallet(1))
        return stored_event.hash, stored_event.mint_block_number, stored_event.is_final

    assert await stored() == (None, None, False)
    async with session(pool) as connection:
        assert await events.find(connection, UUID(int=5)) is None
        await connection.execute(
            "UPDATE rewards SET mint_block_number = 5, mint_block_hash = $1, "
            "mint_transaction_hash = $2",
            a_hash("block"),
            a_hash("mint"),
        )
    assert await stored() == (a_hash("mint"), 5, False)
    async with session(pool) as connection:
        await connection.execute(
            "INSERT INTO chains VALUES (1, $1, $2, 1, 0, 9, $1, 9, 5)", a_hash("x"), a_wallet(2)
        )
    assert await stored() == (a_hash("mint"), 5, True)


async def test_a_claim_total_is_counted_once_even_if_every_event_is_refused(pool: Pool) -> None:
    """A caller who repeats refused events would else have all claims of the type read each time."""
    keys = [a_key(f"user{number}@shop.example") for number in range(500)]
    snapshot = await read_claim(pool, KEY)
    await write(pool, *(a_new_event(snapshot, key) for key in keys))

    assert (await read_snapshot(pool, KEY)).totals == {KEY[:2]: 500}
    async with transaction(pool) as connection:
        before: int = await connection.fetchval(_CLAIMS_READ)
        query = ClaimQuery(KEY, KEY[:2])
        assert (await events.read_snapshot(connection, [query])).totals == {KEY[:2]: 500}
        assert KEY in await events.insert(connection, [a_new_event(snapshot, maximum=10_000)])
        assert await connection.fetchval(_CLAIMS_READ) - before < 50, "of 500 claims"


_CLAIMS_READ = """
SELECT seq_tup_read + coalesce(idx_tup_fetch, 0)
  FROM pg_stat_xact_user_tables WHERE relname = 'event_claims'
"""

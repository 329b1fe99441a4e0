"""A brand's limits and a request's nonce are enforced by the database under concurrency."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest
from msgspec import structs
from msgspec.structs import replace

from ltzd.rules.event_handler.brand_limits import Quota, QuotaKind
from ltzd.rules.event_handler.claims import ClaimRecord
from ltzd.store.database import Pool, session
from ltzd.store.event_handler import events
from ltzd.store.event_handler.events import ClaimKey, ClaimQuery, ClaimSnapshot, EventRow, NewEvent
from ltzd.store.users import users
from tests.support.rows.core import BRAND, a_wallet, value


def a_key(name: str) -> ClaimKey:
    return (BRAND, "account_creation", f"{name}@shop.example")


ANN, BOB = a_key("ann"), a_key("bob")


async def read_snapshot(pool: Pool, *keys: ClaimKey, nonce: str | None = None) -> ClaimSnapshot:
    wanted = [
        ClaimQuery(key, usage=BRAND, nonce=None if nonce is None else (BRAND, nonce))
        for key in keys
    ]
    async with session(pool) as connection:
        return await events.read_snapshot(connection, wanted)


def a_quota(kind: QuotaKind, maximum: int, now: datetime) -> Quota:
    start = now.replace(minute=0, second=0, microsecond=0)
    return Quota(kind, maximum, start, start + timedelta(hours=1))


def an_event(
    snapshot: ClaimSnapshot, key: ClaimKey = ANN, ltz: int = 100, **more: object
) -> NewEvent:
    row = EventRow(
        id=uuid4(),
        brand_id=BRAND,
        event_type=key[1],
        email=key[2],
        user_id=users.user_id(key[2], key[2]),
        domain="shop.example",
        source=None,
        user_identifier=None,
        metadata={},
        ltz=ltz,
        wallet=a_wallet(1),
    )
    claims = snapshot.claims.get(key, ClaimRecord()).claims
    new = NewEvent(row, key, ClaimRecord(claims + 1, row.id, snapshot.now), key[2], None)
    return structs.replace(new, **more)


async def write(pool: Pool, *new_events: NewEvent) -> int:
    async with session(pool) as connection:
        return len(await events.insert(connection, new_events))


async def spend(pool: Pool, name: str, ltz: int, budget: int) -> int:
    snapshot = await read_snapshot(pool, a_key(name))
    quota = a_quota(QuotaKind.LTZ_PER_DAY, budget, snapshot.now)
    return await write(pool, an_event(snapshot, a_key(name), ltz, budget=quota))


async def test_a_batch_spends_the_sum_of_its_rewards(pool: Pool) -> None:
    snapshot = await read_snapshot(pool, ANN, BOB)
    quota = a_quota(QuotaKind.LTZ_PER_DAY, 500, snapshot.now)

    assert await write(
        pool, an_event(snapshot, ANN, 100, budget=quota), an_event(snapshot, BOB, 30, budget=quota)
    )
    assert await spend(pool, "cid", 70, 500) == 1

    usage = (await read_snapshot(pool, ANN)).usage
    assert usage == {(BRAND, QuotaKind.LTZ_PER_DAY, quota.start): 200}


async def test_concurrent_events_do_not_exceed_the_budget(pool: Pool) -> None:
    written = await asyncio.gather(*(spend(pool, f"user{n}", 30, 100) for n in range(20)))

    assert sum(written) == 3
    assert await value(pool, "SELECT sum(ltz)::bigint FROM rewards") == 90
    assert await value(pool, "SELECT used FROM brand_usage") == 90


async def test_a_batch_above_the_budget_writes_nothing(pool: Pool) -> None:
    snapshot = await read_snapshot(pool, ANN, BOB)
    quota = a_quota(QuotaKind.LTZ_PER_DAY, 150, snapshot.now)
    two = [an_event(snapshot, key, 100, budget=quota) for key in (ANN, BOB)]

    assert await write(pool, *two) == 0
    assert await value(pool, "SELECT count(*) FROM events") == 0
    assert (await read_snapshot(pool, ANN)).usage == {}


async def test_a_budget_lowered_below_the_spent_sum_admits_nothing(pool: Pool) -> None:
    assert await spend(pool, "ann", 100, 100) == 1
    assert await spend(pool, "bob", 1, 50) == 0
    assert await spend(pool, "bob", 1, 101) == 1


async def test_an_event_without_a_reward_spends_nothing(pool: Pool) -> None:
    assert await spend(pool, "ann", 0, 100) == 1
    assert (await read_snapshot(pool, ANN)).usage == {}


async def test_a_new_window_starts_at_zero(pool: Pool) -> None:
    snapshot = await read_snapshot(pool, ANN)
    today = a_quota(QuotaKind.LTZ_PER_DAY, 100, snapshot.now)
    tomorrow = replace(today, start=today.end, end=today.end + timedelta(hours=1))

    assert await write(pool, an_event(snapshot, ANN, 100, budget=today)) == 1
    assert await write(pool, an_event(snapshot, BOB, 100, budget=tomorrow)) == 1


async def test_only_new_wallets_count(pool: Pool) -> None:
    for key, new_wallets in ((ANN, 1), (ANN, 1), (BOB, 2)):
        snapshot = await read_snapshot(pool, key)
        quota = a_quota(QuotaKind.WALLETS_PER_HOUR, 2, snapshot.now)
        assert await write(pool, an_event(snapshot, key, wallets=quota)) == 1
        usage = (await read_snapshot(pool, key)).usage
        assert usage == {(BRAND, QuotaKind.WALLETS_PER_HOUR, quota.start): new_wallets}

    snapshot = await read_snapshot(pool, a_key("cid"))
    quota = a_quota(QuotaKind.WALLETS_PER_HOUR, 2, snapshot.now)
    assert await write(pool, an_event(snapshot, a_key("cid"), wallets=quota)) == 0


async def test_a_nonce_is_valid_for_one_request(pool: Pool) -> None:
    first, second = uuid4(), uuid4()
    assert await signed(pool, [ANN], first) == 1
    assert await signed(pool, [BOB], second) == 0
    assert await value(pool, "SELECT count(*) FROM events") == 1
    snapshot = await read_snapshot(pool, BOB, nonce="n" * 16)
    assert snapshot.nonces == {(BRAND, "n" * 16): first}


async def test_one_request_may_hold_several_events_in_several_writes(pool: Pool) -> None:
    request = uuid4()
    assert await signed(pool, [ANN, BOB], request) == 2
    assert await signed(pool, [a_key("cid")], request) == 1


async def test_of_concurrent_replays_one_request_is_written(pool: Pool) -> None:
    written = await asyncio.gather(*(signed(pool, [a_key(f"user{n}")], uuid4()) for n in range(20)))
    assert sum(written) == 1


async def test_a_used_nonce_does_not_fail_the_other_requests_of_its_batch(pool: Pool) -> None:
    await signed(pool, [ANN], uuid4())
    snapshot = await read_snapshot(pool, BOB, a_key("cid"))
    replayed = an_event(snapshot, BOB, nonce="n" * 16, request_id=uuid4())
    assert await write(pool, replayed, an_event(snapshot, a_key("cid"))) == 1


async def signed(pool: Pool, keys: Sequence[ClaimKey], request_id: UUID) -> int:
    snapshot = await read_snapshot(pool, *keys)
    return await write(
        pool,
        *(an_event(snapshot, key, nonce="n" * 16, request_id=request_id) for key in keys),
    )


@pytest.mark.parametrize(("age", "left"), [(659, 1), (661, 0)])
async def test_a_nonce_is_stored_as_long_as_its_signature_is_valid(
    pool: Pool, age: int, left: int
) -> None:
    await signed(pool, [ANN], uuid4())
    async with session(pool) as connection:
        await connection.execute(
            "UPDATE request_nonces SET created_at = now() - make_interval(secs => $1)", age
        )
        await events.delete_expired(connection)
    assert await value(pool, "SELECT count(*) FROM request_nonces") == left


async def test_past_windows_are_deleted_and_open_ones_are_kept(pool: Pool) -> None:
    await spend(pool, "ann", 1, 100)
    async with session(pool) as connection:
        await connection.execute(
            "INSERT INTO brand_usage VALUES ($1, 'ltz_per_day', now() - interval '4 days', 1, 9)",
            BRAND,
        )
        await events.delete_expired(connection)
    assert await value(pool, "SELECT count(*) FROM brand_usage") == 1


async def test_without_a_stored_total_the_claims_of_a_brands_event_type_are_counted(
    pool: Pool,
) -> None:
    other = a_wallet(0xC)
    claims = {ANN: 2, BOB: 3, (BRAND, "form_submit", "ann"): 7, (other, ANN[1], ANN[2]): 11}
    for key, count in claims.items():
        await value(
            pool,
            "INSERT INTO event_claims VALUES ($1, $2, $3, $4, gen_random_uuid(), now())",
            *key,
            count,
        )
    totals = {
        (BRAND, ANN[1]): 5,
        (BRAND, "form_submit"): 7,
        (other, ANN[1]): 11,
        (other, "form_submit"): 0,
    }
    async with session(pool) as connection:
        wanted = [ClaimQuery(ANN, total=key) for key in totals]
        assert (await events.read_snapshot(connection, wanted)).totals == totals

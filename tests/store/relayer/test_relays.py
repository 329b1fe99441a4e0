"""Users' limits and relays as the rows hold them, under concurrent writers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from ltzd.errors import RateLimited
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.transactions import GasCost, Inclusion, State, Transaction
from ltzd.rules.relayer import limits as relay_limits
from ltzd.rules.relayer.admission import NewRelay
from ltzd.rules.relayer.calls import RelayStatus, RequestedClaim
from ltzd.rules.relayer.limits import EarlierRelay, RelayUsage
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.operator import transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import Attempt
from ltzd.store.relayer import claims, relays
from ltzd.values import Address
from tests.support.relays.lanes import (
    OTHER_RELAYER,
    OTHER_USER,
    RELAYER,
    USER,
    a_plan,
    a_relay,
    a_relay_lane,
    progress,
    row_states,
    send,
    store_signed,
    write,
)
from tests.support.rows.core import BRAND, a_hash, a_wallet, save, value
from tests.support.rows.explained import Explained
from tests.support.waiting import until

GAS_COST = GasCost(a_hash("mined"), 50_000, 2)


async def usages(pool: Pool, *queries: tuple[Address, str | None]) -> list[RelayUsage]:
    async with session(pool) as connection:
        return await relays.read_usage(connection, queries)


async def usage(pool: Pool, user: Address = USER, key: str | None = None) -> RelayUsage:
    return (await usages(pool, (user, key)))[0]


def an_inclusion(succeeded: bool = True, gas_cost: GasCost | None = GAS_COST) -> Inclusion:
    return Inclusion(5, a_hash("block"), succeeded, gas_cost)


async def move(pool: Pool, lane: Lane, row: int, was: State, now: Transaction) -> None:
    """Saves a state change of a transaction as its lane does."""
    async with transaction(pool) as connection:
        await save(connection, lane, row, was, now)
        await relays.follow(connection, [row])


async def mine(pool: Pool, lane: Lane, row: int, inclusion: Inclusion) -> None:
    await move(pool, lane, row, State.SIGNED, Transaction(State.MINED, inclusion))


async def age(pool: Pool, how_old: str, relay: int) -> None:
    async with session(pool) as connection:
        await connection.execute(
            "UPDATE relays SET created_at = created_at - $1::text::interval, "
            "window_start = window_start - $1::text::interval WHERE id = $2",
            how_old,
            relay,
        )


# --- usage ------------------------------------------------------------------------------------


async def test_a_new_user_has_no_hour_and_no_relay_in_flight(pool: Pool) -> None:
    actual = await usage(pool)
    assert actual == RelayUsage(actual.now, None, 0, None, False, None, [])
    assert actual.now.tzinfo is UTC
    assert abs(datetime.now(UTC) - actual.now) < timedelta(seconds=30)


async def test_usage_of_many_users_is_returned_in_the_order_of_the_query(pool: Pool) -> None:
    start = (await usage(pool)).now - timedelta(minutes=10)
    each = a_relay(a_plan(claim=(7, 2)), key="k", window_start=start)
    other = a_relay(a_plan(b"\x02", serialized_per_user=True), window_start=start)
    stranger = a_relay(a_plan(b"\x03", OTHER_USER), key="k", window_start=start)
    first, second, third = await write(pool, each, other, stranger)

    actual = await usages(pool, (OTHER_USER, "k"), (a_wallet(9), "k"), (USER, "k"), (USER, None))

    assert [each.used for each in actual] == [1, 0, 2, 2]
    assert [each.earlier for each in actual] == [
        EarlierRelay(third, stranger.fingerprint),
        None,
        EarlierRelay(first, each.fingerprint),
        None,
    ]
    assert [each.has_serialized_in_flight for each in actual] == [False, False, True, True]
    assert [each.last_serialized_id for each in actual] == [None, None, second, second]
    assert [each.claims for each in actual] == [
        [],
        [],
        [RequestedClaim(7, 2)],
        [RequestedClaim(7, 2)],
    ]
    assert [each.window_start for each in actual] == [start, None, start, start]


async def test_numbers_of_256_bits_are_kept_exactly(pool: Pool) -> None:
    largest = 2**256 - 1
    await write(pool, a_relay(a_plan(claim=(largest, largest))))
    assert (await usage(pool)).claims == [RequestedClaim(largest, largest)]


async def test_a_past_hour_does_not_count(pool: Pool) -> None:
    now = (await usage(pool)).now
    await write(pool, *[a_relay(window_start=now - timedelta(minutes=61))] * 35)
    assert (await usage(pool)).used == 0

    begun = now - timedelta(minutes=59)
    await write(pool, *[a_relay(window_start=begun)] * 3)
    actual = await usage(pool)
    assert (actual.used, actual.window_start) == (3, begun)


async def test_of_two_hours_the_newer_one_counts(pool: Pool) -> None:
    """A writer that waited for the lock past the hour's end may find the next hour begun."""
    now = (await usage(pool)).now
    old, new = now - timedelta(minutes=59), now
    await write(pool, *[a_relay(window_start=old)] * 35, a_relay(window_start=new))
    actual = await usage(pool)
    assert (actual.used, actual.window_start) == (1, new)


async def test_the_last_serialized_relay_is_known_after_it_settled_and_its_hour_ended(
    pool: Pool,
) -> None:
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay(a_plan(claim=(7, 0))))
    (row,) = await send(pool, lane)
    assert (await usage(pool)).has_serialized_in_flight

    await mine(pool, lane, row.id, an_inclusion())
    await age(pool, "90 minutes", relay)
    actual = await usage(pool)
    assert (actual.has_serialized_in_flight, actual.last_serialized_id, actual.claims) == (
        False,
        relay,
        [],
    )


async def test_a_call_counts_as_relayed_once_its_relay_is_settled(pool: Pool) -> None:
    plan, other = a_plan(b"\x01"), a_plan(b"\x02")

    async def were_relayed() -> list[bool]:
        queries: list[tuple[Address, str | None]] = [(USER, None), (USER, None), (OTHER_USER, None)]
        digests = [plan.digest, other.digest, plan.digest]
        async with session(pool) as connection:
            actual = await relays.read_usage(connection, queries, digests)
        return [each.was_relayed for each in actual]

    await write(pool, a_relay(plan))
    assert await were_relayed() == [False, False, False]
    lane = await a_relay_lane(pool)
    (row,) = await send(pool, lane)
    await mine(pool, lane, row.id, an_inclusion())
    assert await were_relayed() == [True, False, False]


async def test_each_write_for_a_user_raises_the_users_version_by_one(pool: Pool) -> None:
    """A version that came back would let a relay in that was decided on older rows."""
    for version in range(3):
        assert (await usage(pool)).version == version
        await write(pool, a_relay())
    async with transaction(pool) as connection:
        await relays.lock_users(connection, [USER, OTHER_USER, USER])
    assert [each.version for each in await usages(pool, (USER, None), (OTHER_USER, None))] == [4, 1]
    async with transaction(pool) as connection:
        stale = [replace(a_relay(), version=version) for version in (0, 1, 2, 3, 5)]
        assert [await relays.insert(connection, [relay]) for relay in stale] == [[None]] * 5


async def test_calls_in_flight_have_the_id_of_their_oldest_relay_and_name_their_senders(
    pool: Pool,
) -> None:
    call, other = a_plan(b"\x01"), a_plan(b"\x02")
    first, second, *_ = await write(pool, *map(a_relay, (call, other, call, other)))
    await write(pool, a_relay(a_plan(b"\x03", OTHER_USER)))
    actual = await usage(pool)
    assert actual.calls_in_flight == {call.digest: first, other.digest: second}
    assert actual.senders == {None}

    await send(pool, await a_relay_lane(pool), limit=1)
    actual = await usage(pool)
    assert actual.calls_in_flight == {call.digest: first, other.digest: second}
    assert actual.senders == {RELAYER.address, None}
    assert (await usage(pool, OTHER_USER)).senders == {None}


async def test_a_brands_redemption_of_the_users_token_is_no_call_of_the_user(pool: Pool) -> None:
    """Else it would stand for a relay that has settled since a simulation."""
    plans = a_plan(), a_plan(b"\x02"), a_plan(user=OTHER_USER)
    call, *redemptions = await write(pool, *map(a_relay, plans))
    async with session(pool) as connection:
        await connection.execute(
            "UPDATE relays SET brand_id = $1, window_start = NULL WHERE id = ANY($2)",
            BRAND,
            redemptions,
        )
    assert list((await usage(pool)).calls_in_flight.values()) == [call]
    assert (await usage(pool, OTHER_USER)).senders == set()


async def test_a_simulated_failure_does_not_count_and_keeps_its_key(pool: Pool) -> None:
    failed = a_relay(a_plan(claim=(7, 0)), key="k", failure="ClaimsPaused()")
    (relay,) = await write(pool, failed)
    actual = await usage(pool, key="k")
    assert actual == RelayUsage(
        actual.now,
        None,
        0,
        EarlierRelay(relay, failed.fingerprint),
        False,
        None,
        [],
        version=1,
    )
    shown = await progress(pool, relay)
    assert (shown.reason, shown.transaction_hash) == ("ClaimsPaused()", None)
    assert await row_states(pool) == ["failed"]


# --- concurrent writers -----------------------------------------------------------------------


async def at_once(
    pool: Pool, count: int, write_one: Callable[[Connection], Awaitable[bool]]
) -> int:
    """Runs `count` concurrent transactions and returns how many wrote a row."""

    async def once() -> bool:
        async with transaction(pool) as connection:
            await relays.lock_users(connection, [OTHER_USER, USER])
            return await write_one(connection)

    return sum(await asyncio.gather(*[once() for _ in range(count)]))


async def insert(connection: Connection, relay: NewRelay, decided_on: RelayUsage) -> None:
    await relays.insert(connection, [replace(relay, version=decided_on.version)])


async def test_kept_failures_are_the_users_failed_calls_with_a_key(pool: Pool) -> None:
    fails: dict[str, Any] = {"failure": "ClaimsPaused()"}
    await write(pool, a_relay(a_plan(b"queued"), key="a"))
    for key in ("b", "c"):
        await write(pool, a_relay(a_plan(key.encode()), key=key, **fails))
    (without_key,) = await write(pool, a_relay(a_plan(b"refused"), **fails))
    await age(pool, "25 hours", without_key)
    await write(pool, a_relay(a_plan(user=OTHER_USER), key="b", **fails))
    await value(
        pool, "UPDATE relays SET created_at = now() - interval '23 h' WHERE idempotency_key = 'b'"
    )
    async with session(pool) as connection:
        count, seconds = await relays.kept_failures(connection, USER)
    assert count == 2
    assert 3_000 < seconds <= 3_600


async def test_of_concurrent_relays_at_most_thirty_five_are_written(pool: Pool) -> None:
    async def attempt(connection: Connection) -> bool:
        (actual,) = await relays.read_usage(connection, [(USER, None)])
        try:
            relay_limits.check_hour(actual)
        except RateLimited:
            return False
        await insert(connection, a_relay(window_start=actual.start), actual)
        return True

    assert await at_once(pool, 45, attempt) == 35
    actual = await usage(pool)
    assert actual.used == 35
    assert await value(pool, "SELECT count(DISTINCT window_start) FROM relays") == 1


async def test_of_concurrent_serialized_relays_one_is_written(pool: Pool) -> None:
    async def attempt(connection: Connection) -> bool:
        (actual,) = await relays.read_usage(connection, [(USER, None)])
        if not actual.has_serialized_in_flight:
            await insert(connection, a_relay(a_plan(claim=(7, 0))), actual)
        return not actual.has_serialized_in_flight

    assert await at_once(pool, 12, attempt) == 1


async def test_of_concurrent_requests_with_one_key_one_is_written(pool: Pool) -> None:
    async def attempt(connection: Connection) -> bool:
        (actual,) = await relays.read_usage(connection, [(USER, "k")])
        if actual.earlier is None:
            await insert(connection, a_relay(key="k"), actual)
        return actual.earlier is None

    assert await at_once(pool, 12, attempt) == 1
    with pytest.raises(asyncpg.UniqueViolationError):
        await write(pool, a_relay(key="k"))


async def test_writers_of_the_same_users_in_different_orders_do_not_deadlock(pool: Pool) -> None:
    users = [a_wallet(number) for number in range(30)]

    async def hold(order: Sequence[Address]) -> None:
        for _ in range(10):
            async with transaction(pool) as connection:
                await relays.lock_users(connection, order)

    await asyncio.gather(*[hold(order) for order in (users, users[::-1], users[15:] + users[:15])])


async def test_users_do_not_wait_for_each_other(pool: Pool) -> None:
    async with transaction(pool) as first, transaction(pool) as other:
        await relays.lock_users(first, [USER])
        async with asyncio.timeout(20):
            await relays.lock_users(other, [OTHER_USER])


# --- withdrawal -------------------------------------------------------------------------------


async def test_a_withdrawn_relay_leaves_no_row(pool: Pool) -> None:
    (relay,) = await write(pool, a_relay(a_plan(claim=(7, 0)), key="k"))
    async with session(pool) as connection:
        assert await relays.withdraw(connection, relay)
        assert not await relays.withdraw(connection, relay)
        assert await relays.progress(connection, [relay]) == {}
    actual = await usage(pool, key="k")
    assert actual == RelayUsage(actual.now, None, 0, None, False, None, [], version=1)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_concurrent_signature_and_withdrawal_have_one_winner(
    pool: Pool, commits: bool
) -> None:
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay())

    async def withdraw() -> bool:
        async with session(pool) as connection:
            return await relays.withdraw(connection, relay)

    async with pool.acquire() as connection:
        signing = connection.transaction()
        await signing.start()
        waiting = await claims.claim(connection, lane, 9)
        taking = asyncio.create_task(withdraw())
        await until(lambda: a_writer_waits(pool))
        await store_signed(connection, lane, waiting)
        await (signing.commit() if commits else signing.rollback())
    assert await taking is not commits
    assert await row_states(pool) == (["sent"] if commits else [])


async def a_writer_waits(pool: Pool) -> bool:
    waiting: bool = await value(
        pool,
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND datname = current_database())",
    )
    return waiting


# --- progress ---------------------------------------------------------------------------------


async def test_a_relays_state_follows_its_transaction(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    relay, other = await write(pool, a_relay(), a_relay())
    queued = await progress(pool, relay)
    assert (queued.user, queued.to, queued.data) == (USER, a_plan().to, a_plan().data)
    assert (queued.transaction_hash, queued.reason) == (None, None)

    row, _ = await send(pool, lane)
    signed = await progress(pool, relay)
    assert signed.transaction_hash is None, "no node has accepted it yet"
    assert await row_states(pool) == ["sent", "sent"]
    async with session(pool) as connection:
        await transactions.mark_published(connection, [a_hash(f"{relay}")])
    pending = await progress(pool, relay)
    assert (pending.status, pending.sender) == (RelayStatus.PENDING, RELAYER.address)
    assert pending.transaction_hash == a_hash(f"{relay}")

    await mine(pool, lane, row.id, an_inclusion())
    mined = await progress(pool, relay)
    assert mined == replace(
        pending,
        transaction_hash=GAS_COST.transaction_hash,
        status=RelayStatus.CONFIRMED,
        block_number=5,
        gas_used=50_000,
        effective_gas_price=2,
    )
    async with session(pool) as connection:
        assert (await relays.settled(connection, [relay, other])).keys() == {relay}

    await move(pool, lane, row.id, State.MINED, Transaction(State.PUBLISHED))
    assert await progress(pool, relay) == pending
    assert await row_states(pool) == ["sent", "sent"]

    await mine(pool, lane, row.id, an_inclusion())
    await move(pool, lane, row.id, State.MINED, Transaction(State.CONFIRMED, an_inclusion()))
    final = await progress(pool, relay)
    assert final == replace(mined, status=RelayStatus.FINAL)
    assert await row_states(pool) == ["mined", "sent"]


@pytest.mark.parametrize("is_final", [False, True])
async def test_a_relay_that_reverted_has_failed(pool: Pool, is_final: bool) -> None:
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay())
    (row,) = await send(pool, lane)
    await mine(pool, lane, row.id, an_inclusion(succeeded=False))
    if is_final:
        reverted = Transaction(State.REVERTED, an_inclusion(succeeded=False))
        await move(pool, lane, row.id, State.MINED, reverted)
    failed = await progress(pool, relay)
    assert (failed.status, failed.gas_used) == (RelayStatus.FAILED, 50_000)
    assert not (await usage(pool)).has_serialized_in_flight


async def test_a_displaced_relay_has_failed_and_no_longer_blocks_its_user(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay(a_plan(claim=(7, 0))))
    (row,) = await send(pool, lane)
    await move(pool, lane, row.id, State.SIGNED, Transaction(State.DISPLACED))
    failed = await progress(pool, relay)
    assert (failed.status, failed.block_number) == (RelayStatus.FAILED, None)
    actual = await usage(pool)
    assert (actual.has_serialized_in_flight, actual.claims) == (False, [])
    async with session(pool) as connection:
        assert (await relays.settled(connection, [relay])).keys() == {relay}


async def test_busy_users_are_found_in_one_query(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    third = a_wallet(0xA3)
    await write(pool, a_relay(a_plan(user=third, serialized_per_user=True)))
    (row,) = await send(pool, lane)
    await mine(pool, lane, row.id, an_inclusion())
    await write(pool, a_relay(a_plan(claim=(7, 0))), a_relay(a_plan(user=OTHER_USER)))
    async with session(pool) as connection:
        assert await relays.users_with_serialized(connection, [USER, OTHER_USER, third]) == {USER}
        await send(pool, lane, 1)
        assert await relays.users_with_serialized(connection, [USER, OTHER_USER]) == {USER}
        assert await relays.users_with_serialized(connection, [OTHER_USER]) == set()


async def test_a_relay_is_found_by_any_of_its_hashes_and_only_for_its_user(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay())
    (row,) = await send(pool, lane)
    dearer = Attempt(a_hash("dearer"), b"dearer", Fees(10**10, 10**9))
    async with session(pool) as connection:
        await transactions.store_attempt(connection, lane, row.id, dearer)
        untaken = await relays.by_hash(connection, a_hash("dearer"), [USER])
        assert untaken is not None
        assert untaken.transaction_hash is None, (
            "a hash is shown once a node has accepted the transaction"
        )
        await transactions.mark_published(connection, [a_hash("dearer")])
        for hash_, shown in (("dearer", "dearer"), (f"{relay}", "dearer")):
            actual = await relays.by_hash(connection, a_hash(hash_), [OTHER_USER, USER])
            assert actual is not None
            assert (actual.id, actual.transaction_hash) == (relay, a_hash(shown))
        assert await relays.by_hash(connection, a_hash("dearer"), [OTHER_USER]) is None
        assert await relays.by_hash(connection, a_hash("dearer"), []) is None
        assert await relays.by_hash(connection, a_hash("unknown"), [USER]) is None


async def test_of_several_attempts_the_published_one_is_shown(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay())
    (row,) = await send(pool, lane)
    dearer = Attempt(a_hash("dearer"), b"dearer", Fees(10**10, 10**9))
    async with session(pool) as connection:
        await transactions.store_attempt(connection, lane, row.id, dearer)
        await transactions.mark_published(connection, [a_hash(f"{relay}")])
        published = await relays.by_hash(connection, a_hash("dearer"), [USER])
    assert published is not None
    assert published.transaction_hash == a_hash(f"{relay}"), "only this attempt was published"


CANCELLED = Inclusion(5, a_hash("block"), False, GAS_COST, is_cancellation=True)
"""Where a self-transfer is mined in the place of a call."""


async def test_a_relay_cancelled_by_a_self_transfer_is_pending_until_that_is_final(
    pool: Pool,
) -> None:
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay(a_plan(claim=(7, 0))))
    (row,) = await send(pool, lane)
    empty = Attempt(a_hash("empty"), b"empty", Fees(10**10, 10**9), is_cancellation=True)
    async with session(pool) as connection:
        await transactions.store_attempt(connection, lane, row.id, empty)
        await transactions.mark_published(connection, [empty.hash])
    await mine(pool, lane, row.id, CANCELLED)
    pending = await progress(pool, relay)
    assert (pending.status, pending.block_number) == (RelayStatus.PENDING, None)
    assert await row_states(pool) == ["sent"]
    assert (await usage(pool)).has_serialized_in_flight
    async with session(pool) as connection:
        assert await relays.settled(connection, [relay]) == {}

    await move(pool, lane, row.id, State.MINED, Transaction(State.CANCELLED, CANCELLED))
    failed = await progress(pool, relay)
    assert (failed.status, failed.block_number) == (RelayStatus.FAILED, 5)
    assert failed.is_cancelled
    assert not (await usage(pool)).has_serialized_in_flight
    async with session(pool) as connection:
        assert (await relays.settled(connection, [relay])).keys() == {relay}
        actual = await relays.by_hash(connection, a_hash(f"{relay}"), [USER])
    assert actual is not None
    assert actual.id == relay, "the refused attempt's hash finds it as well"


async def test_a_relay_that_cannot_be_signed_fails_with_its_reason_and_does_not_count(
    pool: Pool,
) -> None:
    lane = await a_relay_lane(pool)
    refused, sent = await write(pool, a_relay(key="one"), a_relay())
    async with transaction(pool) as connection:
        await relays.refuse(connection, {refused: "its gas limit is too small"})
        assert [each.id for each in await claims.claim(connection, lane, 9)] == [sent]
    actual = await progress(pool, refused)
    assert (actual.reason, actual.transaction_hash) == ("its gas limit is too small", None)
    assert (await usage(pool)).used == 1, "the other's"
    async with session(pool) as connection:
        assert (await relays.settled(connection, [refused])).keys() == {refused}


async def test_a_signed_relay_cannot_be_refused(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay())
    await send(pool, lane)
    async with transaction(pool) as connection:
        await relays.refuse(connection, {relay: "too late"})
    assert await row_states(pool) == ["sent"]


# --- deletion ---------------------------------------------------------------------------------


async def test_idempotency_keys_and_their_failed_relays_are_deleted_after_a_day(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    ids = await write(
        pool,
        a_relay(key="old"),
        a_relay(key="young"),
        a_relay(key="old failure", failure="no"),
        a_relay(key="young failure", failure="no"),
    )
    await send(pool, lane)
    for relay, how_old in zip(ids, ["24:00:01", "23:59", "24:00:01", "23:59"], strict=True):
        await age(pool, how_old, relay)
    async with transaction(pool) as connection:
        await relays.delete_expired(connection)
    keys = ["old", "young", "old failure", "young failure"]
    earlier = [each.earlier for each in await usages(pool, *[(USER, key) for key in keys])]
    assert [each and each.id for each in earlier] == [None, ids[1], None, ids[3]]
    assert await row_states(pool) == ["sent", "sent", "failed"]


async def test_a_relay_queued_for_ten_minutes_is_not_sent_and_is_deleted(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    (sent,) = await write(pool, a_relay())
    await send(pool, lane)
    old, young = await write(pool, a_relay(), a_relay())
    for relay, how_old in ((sent, "10 minutes"), (old, "10 minutes"), (young, "9 minutes")):
        await age(pool, how_old, relay)
    async with transaction(pool) as connection:
        assert [each.id for each in await claims.claim(connection, lane, 9)] == [young]
    async with transaction(pool) as connection:
        await relays.delete_expired(connection)
    assert await row_states(pool) == ["sent", "queued"]


# --- query plans with many rows ---------------------------------------------------------------

ROWS, USERS = 20_000, 1_000


async def fill(connection: Connection, lane: Lane) -> None:
    """Inserts mined relays of many users over the last ten hours."""
    await connection.execute(
        "SET session_replication_role = replica"
    )  # Foreign keys are not checked.
    await connection.execute(
        """
        WITH sent AS (
          INSERT INTO transactions (chain_id, wallet, nonce, kind, to_address, data, gas_limit,
                                    state, succeeded, block_number, block_hash, mined_attempt,
                                    gas_used, effective_gas_price)
          SELECT $1, $2, n, 'relay', $3, '', 1, 'confirmed', true, n, $4, $4, 1, 1
            FROM generate_series(1, $5) AS g (n)
       RETURNING id, nonce
        ), attempted AS (
          INSERT INTO attempts
                 (hash, transaction_id, raw, max_fee_per_gas, max_priority_fee_per_gas)
          SELECT sha256(int8send(id)), id, '', 1, 1 FROM sent
        )
        INSERT INTO relays (user_address, to_address, data, function, serialized_per_user,
                            idempotency_key, fingerprint, gas_limit, max_cost_wei, window_start,
                            state, transaction_id)
        SELECT substring(sha256(int8send(nonce % $6)) FOR 20), $3, '', 'f', true,
               nonce::text, '', 1, 1, now() - (nonce % 10) * interval '1 hour', 'mined', id
          FROM sent
        """,
        lane.chain_id,
        OTHER_RELAYER.address,
        a_plan().to,
        a_hash("block"),
        ROWS,
        USERS,
    )
    await connection.execute("SET session_replication_role = DEFAULT")


async def test_queries_about_relays_read_only_the_relays_they_return(
    pool: Pool,
) -> None:
    """This holds with and without planner statistics."""
    lane = await a_relay_lane(pool)
    async with session(pool) as connection:
        await fill(connection, lane)
        (relay,) = await write(pool, a_relay(a_plan(claim=(7, 0)), key="k"))
        busy, mined, hash_ = await connection.fetchrow(
            "SELECT user_address, r.id, a.hash FROM relays r JOIN attempts a USING (transaction_id)"
            " LIMIT 1"
        )
        its_own = 6 * ROWS // USERS
        questions: list[tuple[Callable[[Any], Awaitable[object]], int]] = [
            (lambda it: relays.read_usage(it, [(USER, "k"), (a_wallet(5), None)]), 20),
            (lambda it: relays.read_usage(it, [(busy, "k")]), its_own),
            (lambda it: relays.read_usage(it, [(busy, None)], [b"\x01" * 32]), its_own),
            (lambda it: claims.claim(it, lane, 100), 10),
            (lambda it: relays.progress(it, [relay, mined]), 10),
            (lambda it: relays.settled(it, [relay, mined]), 10),
            (lambda it: relays.users_with_serialized(it, [USER, busy]), 5),
            (lambda it: relays.by_hash(it, hash_, [busy]), 10),
        ]
        for _ in range(2):
            for ask, most in questions:
                explained = Explained(connection)
                await ask(explained)
                assert 0 < explained.read <= most
            await connection.execute("ANALYZE relays, transactions, attempts")


async def test_claiming_relays_reads_only_the_relays_claimed(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    relays_of_all = [a_relay(a_plan(user=a_wallet(number))) for number in range(2_000)]
    ids = await write(pool, *relays_of_all)
    async with session(pool) as connection:
        await connection.execute("ANALYZE relays")
        explained = Explained(connection)
        taken = await claims.claim(explained, lane, 10)
    assert [each.id for each in taken] == ids[:10]
    assert explained.read <= 80

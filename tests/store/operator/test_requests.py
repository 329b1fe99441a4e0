"""Requests for transactions: joined, withdrawn, expired, and carried out at most once."""

import pytest

from ltzd.errors import LaneLost
from ltzd.rules.operator.requests import Action, RequestOutcome
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import requests, transactions, wallets
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.requests import TransactionRequest
from tests.support.relays.lanes import a_relay_lane
from tests.support.rows.core import a_hash, a_lane, an_attempt, an_intent, value


async def a_transaction(pool: Pool, lane: Lane, nonce: int = 0) -> int:
    async with session(pool) as connection:
        attempt = an_attempt(f"first {nonce}")
        return await transactions.store_signed(connection, lane, an_intent(nonce), attempt)


async def ask(
    pool: Pool,
    tx: int,
    action: Action = Action.SPEED_UP,
    seconds: float | None = 60.0,
    joins: float = 0.0,
) -> tuple[TransactionRequest, bool]:
    async with transaction(pool) as connection:
        return await requests.ask(
            connection, tx, action, expires_in_seconds=seconds, joins_seconds=joins
        )


async def open_ids(pool: Pool, lane: Lane) -> list[int]:
    async with session(pool) as connection:
        open_ = await requests.open_requests(connection, lane, 10)
        _, has_requests = await wallets.find_with_requests(connection, lane.chain_id, lane.wallet)
        assert has_requests == bool(open_)
    return [request.id for request in open_]


async def again(pool: Pool, request: TransactionRequest) -> TransactionRequest:
    async with session(pool) as connection:
        now = await requests.find(connection, request.id)
    assert now is not None
    return now


async def store_second(pool: Pool, lane: Lane, tx: int, request: TransactionRequest) -> bool:
    """Stores an attempt for the request as a lane does; False if the request is closed."""
    attempt = an_attempt(f"{await attempts(pool)} for {request.id}")
    async with session(pool) as connection:
        begun = connection.transaction()
        await begun.start()
        await transactions.store_attempt(connection, lane, tx, attempt)
        is_done = await requests.carry_out(connection, request.id, attempt.hash)
        await (begun.commit() if is_done else begun.rollback())
    return is_done


async def attempts(pool: Pool) -> int:
    count: int = await value(pool, "SELECT count(*) FROM attempts")
    return count


async def test_a_command_that_is_repeated_joins_the_open_request(pool: Pool) -> None:
    lane = await a_lane(pool)
    tx = await a_transaction(pool, lane)
    first, is_new = await ask(pool, tx, seconds=60.0)
    second, is_new_too = await ask(pool, tx, seconds=600.0)
    other, is_other = await ask(pool, tx, Action.CANCEL)

    assert (is_new, is_new_too, is_other) == (True, False, True)
    assert second.id == first.id != other.id
    assert first.expires_at is not None
    assert second.expires_at is not None
    assert second.expires_at > first.expires_at
    assert await open_ids(pool, lane) == [first.id, other.id]


async def test_a_request_that_never_expires_stays_so_when_it_is_joined(pool: Pool) -> None:
    lane = await a_lane(pool)
    tx = await a_transaction(pool, lane)
    await ask(pool, tx, seconds=None)
    joined, _ = await ask(pool, tx, seconds=1.0)

    assert joined.expires_at is None


async def test_a_request_is_carried_out_once_and_joined_for_a_while(pool: Pool) -> None:
    lane = await a_lane(pool)
    tx = await a_transaction(pool, lane)
    request, _ = await ask(pool, tx)

    assert await store_second(pool, lane, tx, request)
    assert not await store_second(pool, lane, tx, request)
    done = await again(pool, request)
    assert (done.outcome, done.attempt) == (RequestOutcome.DONE, a_hash(f"1 for {request.id}"))
    assert await open_ids(pool, lane) == []
    joined, is_new = await ask(pool, tx, joins=3600.0)
    assert (joined.id, is_new) == (request.id, False)
    repeated, is_new = await ask(pool, tx)
    assert (repeated.id != request.id, is_new) == (True, True)


async def test_a_withdrawn_request_is_not_carried_out(pool: Pool) -> None:
    lane = await a_lane(pool)
    tx = await a_transaction(pool, lane)
    request, _ = await ask(pool, tx)
    async with session(pool) as connection:
        assert await requests.withdraw(connection, request.id)
        assert not await requests.withdraw(connection, request.id)

    assert not await store_second(pool, lane, tx, request)
    assert await attempts(pool) == 1
    assert (await again(pool, request)).outcome is RequestOutcome.WITHDRAWN


async def test_an_expired_request_is_not_carried_out_and_not_joined(pool: Pool) -> None:
    """As by a process that was frozen after it had read the request."""
    lane = await a_lane(pool)
    tx = await a_transaction(pool, lane)
    request, _ = await ask(pool, tx, seconds=0.0)

    assert not await store_second(pool, lane, tx, request)
    assert await attempts(pool) == 1
    async with session(pool) as connection:
        (open_,) = await requests.open_requests(connection, lane, 10)
    assert open_.is_expired
    other, is_new = await ask(pool, tx)
    assert is_new
    assert await open_ids(pool, lane) == [other.id]
    assert (await again(pool, request)).outcome is RequestOutcome.EXPIRED


async def test_a_refusal_keeps_an_outcome_and_needs_the_lanes_term(pool: Pool) -> None:
    lane = await a_lane(pool)
    tx = await a_transaction(pool, lane)
    done, _ = await ask(pool, tx)
    await store_second(pool, lane, tx, done)
    request, _ = await ask(pool, tx)
    async with session(pool) as connection:
        both = [(done.id, RequestOutcome.FEES), (request.id, RequestOutcome.FEES)]
        await requests.refuse(connection, lane, both)
    assert (await again(pool, done)).outcome is RequestOutcome.DONE
    assert (await again(pool, request)).outcome is RequestOutcome.FEES

    last, _ = await ask(pool, tx)
    await a_lane(pool)  # another term
    with pytest.raises(LaneLost):
        async with session(pool) as connection:
            await requests.refuse(connection, lane, [(last.id, RequestOutcome.FUNDS)])
    assert (await again(pool, last)).outcome is None


async def test_a_lane_sees_only_requests_for_its_own_wallet(pool: Pool) -> None:
    lane, other = await a_lane(pool), await a_relay_lane(pool)
    request, _ = await ask(pool, await a_transaction(pool, lane))

    assert await open_ids(pool, lane) == [request.id]
    assert await open_ids(pool, other) == []


async def test_only_a_persons_cancellation_counts_as_by_hand(pool: Pool) -> None:
    lane = await a_lane(pool)
    tx = await a_transaction(pool, lane)
    speed_up, _ = await ask(pool, tx)
    await store_second(pool, lane, tx, speed_up)
    async with session(pool) as connection:
        assert not await requests.is_cancelled_by_hand(connection, tx)
    cancel, _ = await ask(pool, tx, Action.CANCEL)
    await store_second(pool, lane, tx, cancel)
    async with session(pool) as connection:
        assert await requests.is_cancelled_by_hand(connection, tx)

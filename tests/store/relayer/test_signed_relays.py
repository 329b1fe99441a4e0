"""Relays that are stored with their transactions, and the versions that keep them apart."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs
from msgspec.structs import replace

from ltzd.errors import LaneLost
from ltzd.rules.relayer.admission import NewRelay
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import Attempt
from ltzd.store.relayer import claims, relays, signed_relays
from ltzd.store.relayer.signed_relays import SentRelay
from ltzd.values import Address
from tests.support.relays.lanes import (
    MAX_COST_WEI,
    OTHER_RELAYER,
    OTHER_USER,
    USER,
    a_plan,
    a_relay,
    a_relay_lane,
    row_states,
    send,
    write,
)
from tests.support.rows.core import FEES, a_hash, a_wallet, states, value


def of(user: Address, version: int = 0, data: bytes = b"\x01") -> NewRelay:
    return structs.replace(a_relay(a_plan(data, user), identity="ann"), version=version)


async def insert(
    pool: Pool, lane: Lane, first_nonce: int, new: Sequence[NewRelay]
) -> list[SentRelay]:
    attempts = [
        Attempt(a_hash(f"direct {first_nonce + n}"), f"{first_nonce + n}".encode(), FEES)
        for n in range(len(new))
    ]
    async with session(pool) as connection:
        return await signed_relays.insert(connection, lane, first_nonce, new, attempts)


async def queue(pool: Pool, *new: NewRelay) -> list[int | None]:
    async with session(pool) as connection:
        return await relays.insert(connection, new)


async def version_of(pool: Pool, user: Address) -> int:
    async with session(pool) as connection:
        (usage,) = await relays.read_usage(connection, [(user, None)])
    return usage.version


async def test_relays_are_stored_as_sent_with_transactions_in_the_order_of_nonces(
    pool: Pool,
) -> None:
    lane, _ = await a_relay_lane(pool), await a_relay_lane(pool, OTHER_RELAYER)
    users = [a_wallet(number) for number in range(9, 0, -1)]
    sent = await insert(pool, lane, 0, [of(user) for user in users])
    assert [relay.transaction.nonce for relay in sent] == list(range(9))
    assert await row_states(pool) == ["sent"] * 9
    assert await states(pool) == ["signed"] * 9
    async with session(pool) as connection:
        rows = await connection.fetch(
            "SELECT r.id, r.user_address, r.claimed_by, t.id AS transaction_id, t.nonce, a.raw "
            "FROM relays r JOIN transactions t ON t.id = r.transaction_id "
            "JOIN attempts a ON a.transaction_id = t.id ORDER BY t.nonce"
        )
    assert [row["user_address"] for row in rows] == users
    assert [row["raw"] for row in rows] == [f"{nonce}".encode() for nonce in range(9)]
    assert {row["claimed_by"] for row in rows} == {lane.wallet}
    assert [(row["id"], row["transaction_id"]) for row in rows] == [
        (relay.id, relay.transaction.id) for relay in sent
    ]
    next_nonces = "SELECT array_agg(next_nonce ORDER BY wallet = $1 DESC) FROM lanes"
    assert await value(pool, next_nonces, lane.wallet) == [9, 0]
    spent = await value(pool, "SELECT sum(wei) FROM gas_spent WHERE identity = 'ann'")
    assert spent == 9 * MAX_COST_WEI


async def test_a_relay_decided_on_an_old_version_ends_the_list(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    await write(pool, a_relay(a_plan(user=OTHER_USER)), a_relay(a_plan(user=USER)))
    assert await insert(pool, lane, 0, [of(OTHER_USER)]) == []
    first, last = a_wallet(1), a_wallet(2)
    sent = await insert(pool, lane, 0, [of(first), of(OTHER_USER), of(last), of(USER)])
    assert [relay.transaction.nonce for relay in sent] == [0]
    assert await row_states(pool) == ["queued", "queued", "sent"]
    assert await value(pool, "SELECT next_nonce FROM lanes") == 1
    again = [of(user, await version_of(pool, user), b"\x02") for user in (OTHER_USER, last)]
    assert [relay.transaction.nonce for relay in await insert(pool, lane, 1, again)] == [1, 2]


@pytest.mark.parametrize(("nonce", "epoch"), [(1, 1), (0, 0)])
async def test_a_lane_whose_term_is_over_stores_nothing(pool: Pool, nonce: int, epoch: int) -> None:
    lane = await a_relay_lane(pool)
    with pytest.raises(LaneLost):
        await insert(pool, replace(lane, epoch=epoch), nonce, [of(USER)])
    assert await row_states(pool) == []
    assert await states(pool) == []
    assert await version_of(pool, USER) == 0


async def test_of_writers_that_decided_on_the_same_version_one_succeeds(pool: Pool) -> None:
    ids = await asyncio.gather(*[queue(pool, of(USER, 0, bytes([n]))) for n in range(8)])
    assert sum(id_ is not None for (id_,) in ids) == 1
    assert await row_states(pool) == ["queued"]


async def test_a_lock_of_a_user_makes_earlier_decisions_void(pool: Pool) -> None:
    version = await version_of(pool, USER)
    async with transaction(pool) as connection:
        await relays.lock_users(connection, [USER])
        writing = asyncio.create_task(queue(pool, of(USER, version)))
        done, _ = await asyncio.wait({writing}, timeout=0.05)
        assert not done, "the writer waits for the lock"
    assert await writing == [None]
    assert await row_states(pool) == []


async def test_relays_stored_directly_and_queued_relays_share_the_nonces(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    await insert(pool, lane, 0, [of(USER)])
    await write(pool, a_relay(a_plan(b"\x02", OTHER_USER)))
    (queued,) = await send(pool, lane, first_nonce=1)
    assert queued.nonce == 1
    (direct,) = await insert(pool, lane, 2, [of(a_wallet(3))])
    assert direct.transaction.nonce == 2
    async with session(pool) as connection:
        assert await claims.claim(connection, lane, 9) == []

"""A state changes only from the state that its writer saw; signed bytes are there before all else."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from ltzd.errors import IllegalTransition
from ltzd.rules.transactions import Place, State, Transaction
from ltzd.store import chains, lanes, transactions
from ltzd.store.chains import BlockRow
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.lanes import Lane
from tests.support.core import (
    FEES,
    MINTER,
    a_hash,
    an_attempt,
    an_intent,
    follow,
    queue_rewards,
    states,
    value,
)
from tests.support.fake_node import CHAIN_ID, FakeNode

PLACE = Place(5, a_hash("block 5"), succeeded=True)


@pytest.fixture
async def connection(pool: Pool) -> AsyncIterator[Connection]:
    async with session(pool) as connection:
        yield connection


@pytest.fixture
async def lane(connection: Connection) -> Lane:
    return await lanes.begin_term(connection, CHAIN_ID, MINTER.address, "mint", 0)


async def test_a_signed_transaction_is_in_flight_with_its_bytes(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    ids = await queue_rewards(pool, 2)
    row, created_at = await transactions.store_signed(
        connection, lane, an_intent(0, ids), an_attempt("bytes")
    )

    (tx,) = await transactions.in_flight(connection, lane)

    assert (tx.id, tx.nonce, tx.raw, tx.hashes) == (row, 0, b"bytes", (a_hash("bytes"),))
    assert (tx.tx, tx.created_at) == (Transaction(State.SIGNED), created_at)
    assert (tx.gas_limit, tx.max_fee_per_gas) == (100_000, FEES.max_fee_per_gas)


async def test_a_reward_that_has_a_transaction_is_refused_and_nothing_is_written(
    pool: Pool, lane: Lane
) -> None:
    ids = await queue_rewards(pool, 2)
    async with transaction(pool) as connection:
        await transactions.store_signed(connection, lane, an_intent(0, ids[:1]), an_attempt("a"))

    with pytest.raises(IllegalTransition):
        async with transaction(pool) as connection:
            intent = an_intent(1, ids, first_seq=1)
            await transactions.store_signed(connection, lane, intent, an_attempt("b"))

    assert await states(pool) == ["signed"]
    assert await value(pool, "SELECT count(*) FROM rewards WHERE transaction_id IS NULL") == 1


async def test_a_nonce_is_stored_once(pool: Pool, lane: Lane) -> None:
    async with transaction(pool) as connection:
        await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    with pytest.raises(asyncpg.UniqueViolationError):
        async with transaction(pool) as connection:
            await transactions.store_signed(connection, lane, an_intent(0), an_attempt("b"))


async def test_publication_may_be_told_again_and_again(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    await transactions.mark_published(connection, a_hash("a"))
    first = await value(pool, "SELECT published_at FROM attempts")

    await transactions.mark_published(connection, a_hash("a"))
    await transactions.mark_published(connection, a_hash("nobody's"))

    assert await states(pool) == ["published"]
    assert await value(pool, "SELECT published_at FROM attempts") == first


async def test_a_late_publication_leaves_a_later_state(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    row, _ = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    await transactions.save(connection, row, State.SIGNED, Transaction(State.MINED, PLACE))

    await transactions.mark_published(connection, a_hash("a"))

    assert await states(pool) == ["mined"]
    assert await value(pool, "SELECT published_at IS NOT NULL FROM attempts")


@pytest.mark.parametrize("was", [state for state in State if state is not State.SIGNED])
async def test_a_save_from_a_wrong_state_raises_and_changes_nothing(
    pool: Pool, connection: Connection, lane: Lane, was: State
) -> None:
    row, _ = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))

    with pytest.raises(IllegalTransition, match=was.name):
        await transactions.save(connection, row, was, Transaction(State.MINED, PLACE))

    assert await states(pool) == ["signed"]


async def test_times_and_place_follow_the_state(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    async def row() -> asyncpg.Record:
        return await connection.fetchrow(
            "SELECT state, block_number, block_hash, succeeded, "
            "mined_at IS NOT NULL AS mined, settled_at IS NOT NULL AS settled FROM transactions"
        )

    row_id, _ = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    mined = Transaction(State.MINED, PLACE)
    await transactions.save(connection, row_id, State.SIGNED, mined)
    assert tuple(await row()) == ("mined", 5, PLACE.block_hash, True, True, False)
    await transactions.save(connection, row_id, State.MINED, Transaction(State.PUBLISHED))
    assert tuple(await row()) == ("published", None, None, None, False, False)
    await transactions.save(connection, row_id, State.PUBLISHED, mined)
    confirmed = Transaction(State.CONFIRMED, PLACE)
    await transactions.save(connection, row_id, State.MINED, confirmed)
    assert tuple(await row()) == ("confirmed", 5, PLACE.block_hash, True, True, True)


async def test_only_this_lanes_unmined_transactions_are_in_flight_in_order(
    connection: Connection, lane: Lane
) -> None:
    other = await lanes.begin_term(connection, CHAIN_ID, LTZ_WALLET, "mint", 0)
    for nonce in (2, 0, 1):
        await transactions.store_signed(connection, lane, an_intent(nonce), an_attempt(f"{nonce}"))
    await transactions.store_signed(connection, other, an_intent(0), an_attempt("other"))
    flight = await transactions.in_flight(connection, lane)
    await transactions.save(connection, flight[1].id, State.SIGNED, Transaction(State.MINED, PLACE))

    assert [tx.nonce for tx in flight] == [0, 1, 2]
    assert [tx.nonce for tx in await transactions.in_flight(connection, lane)] == [0, 2]


LTZ_WALLET = MINTER.address[::-1]


async def test_a_mined_transaction_is_judged_when_final_or_not_indexed(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    node = FakeNode()
    await follow(pool, node)
    ids = await queue_rewards(pool, 2)
    indexed = Place(1, a_hash("indexed"), succeeded=True)
    orphaned = Place(1, a_hash("orphaned"), succeeded=False)
    for nonce, place in enumerate((indexed, orphaned)):
        row, _ = await transactions.store_signed(
            connection,
            lane,
            an_intent(nonce, ids[nonce : nonce + 1], nonce),
            an_attempt(f"{nonce}"),
        )
        await transactions.save(connection, row, State.SIGNED, Transaction(State.MINED, place))
    block = BlockRow(1, indexed.block_hash, node.blocks[0].hash, 1_700_000_001)
    await chains.insert_blocks(connection, [block])
    epoch = await chains.begin_term(connection, CHAIN_ID)
    await chains.move_cursor(
        connection, CHAIN_ID, epoch, node.blocks[0].hash, (1, indexed.block_hash), 1
    )

    (only,) = await transactions.mined_to_judge(connection, lane, 10)
    assert (only.transaction.nonce, only.is_indexed, only.is_past_finality) == (1, False, False)
    assert only.unminted == 0, "a reverted mint owes nothing to its references"

    await chains.raise_finality(connection, CHAIN_ID, epoch, 1)
    judged = await transactions.mined_to_judge(connection, lane, 10)
    assert [(each.transaction.nonce, each.is_indexed, each.unminted) for each in judged] == [
        (0, True, 1),
        (1, False, 0),
    ]
    assert all(each.is_past_finality for each in judged)
    assert len(await transactions.mined_to_judge(connection, lane, 1)) == 1

"""Signing takes nonce, references and rewards in one step; states change by compare-and-set."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec import structs
from msgspec.structs import replace

from ltzd.errors import LaneLost
from ltzd.rules.operator.fees import GWEI, Fees
from ltzd.rules.operator.references import LaneReferences
from ltzd.rules.operator.transactions import GasCost, Inclusion, State, Transaction
from ltzd.rules.operator.wallet_history import REFERENCES_A_WORD
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import BlockRow
from ltzd.store.operator import lanes, rewards, settlement, transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import Attempt, Intent, RewardsTaken
from ltzd.values import Address
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode
from tests.support.rows.core import (
    FEES,
    MINTER,
    a_hash,
    a_lane,
    an_attempt,
    an_intent,
    follow,
    queue_rewards,
    references_from,
    save,
    states,
    value,
)
from tests.support.rows.explained import Explained
from tests.support.waiting import until

PLACE = Inclusion(5, a_hash("block 5"), succeeded=True)
MINED = Transaction(State.MINED, PLACE)
OTHER_WALLET = Address(MINTER.address[::-1])
WAITS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
async def connection(pool: Pool) -> AsyncIterator[Connection]:
    async with session(pool) as connection:
        yield connection


@pytest.fixture
async def lane(pool: Pool) -> Lane:
    return await a_lane(pool)


async def counters(connection: Connection) -> tuple[int | None, int | None]:
    return (
        await lanes.next_nonce(connection, CHAIN_ID, MINTER.address),
        (await lanes.references(connection, CHAIN_ID, MINTER.address)).next_seq,
    )


async def test_a_signed_transaction_is_in_flight_with_its_bytes(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    ids = await queue_rewards(pool, 2)
    row = await transactions.store_signed(connection, lane, an_intent(0, ids), an_attempt("bytes"))

    await queue_rewards(pool, 1)
    (tx,) = await transactions.in_flight(connection, lane)

    assert (tx.id, tx.nonce, tx.raw, tx.hashes) == (row, 0, b"bytes", (a_hash("bytes"),))
    assert tx.tx == Transaction(State.SIGNED)
    assert (tx.gas_limit, tx.fees) == (100_000, FEES)
    assert tx.ltz == 200, "the sum of its rewards"


async def test_signing_takes_the_nonce_and_the_references(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    ids = await queue_rewards(pool, 5)
    await transactions.store_signed(connection, lane, an_intent(0, ids[:3]), an_attempt("a"))
    assert await counters(connection) == (1, 3)
    await transactions.store_signed(connection, lane, an_intent(1, ids[3:], 3), an_attempt("b"))
    assert await counters(connection) == (2, 5)
    seqs = await connection.fetch("SELECT seq FROM rewards ORDER BY position")
    assert [row["seq"] for row in seqs] == [0, 1, 2, 3, 4]


async def test_a_rolled_back_signature_leaves_no_gap_in_the_counters(
    pool: Pool, lane: Lane
) -> None:
    ids = await queue_rewards(pool, 2)

    class RolledBack(Exception):
        pass

    async def sign_in_vain() -> None:
        async with transaction(pool) as connection:
            await transactions.store_signed(connection, lane, an_intent(0, ids), an_attempt("a"))
            assert await counters(connection) == (1, 2)
            raise RolledBack

    with pytest.raises(RolledBack):
        await sign_in_vain()
    async with session(pool) as connection:
        assert await counters(connection) == (0, 0)
        await transactions.store_signed(connection, lane, an_intent(0, ids), an_attempt("a"))


async def test_a_reward_that_has_a_reference_takes_no_new_one(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    ids = await queue_rewards(pool, 3)
    row = await transactions.store_signed(connection, lane, an_intent(0, ids[:2]), an_attempt("a"))
    await rewards.requeue(connection, row)

    mixed = replace(an_intent(1, ids[:1], 2), rewards=ids, seqs=[0, 1, 2])
    await transactions.store_signed(connection, lane, mixed, an_attempt("b"))

    assert await counters(connection) == (2, 3)


MISFITS: dict[str, Callable[[Lane, Intent, list[UUID]], tuple[Lane, Intent]]] = {
    "an earlier term": lambda lane, mint, _: (replace(lane, epoch=lane.epoch - 1), mint),
    "another wallet": lambda lane, mint, _: (replace(lane, wallet=OTHER_WALLET), mint),
    "a nonce that was used": lambda lane, mint, _: (lane, replace(mint, nonce=0)),
    "a nonce too far": lambda lane, mint, _: (lane, replace(mint, nonce=2)),
    "references given out": lambda lane, mint, _: (
        lane,
        replace(mint, references=references_from(0)),
    ),
    "references with a gap": lambda lane, mint, _: (
        lane,
        replace(mint, references=references_from(2)),
    ),
}
TAKEN: dict[str, Callable[[Intent, list[UUID]], Intent]] = {
    "a reward with a transaction": lambda mint, ids: replace(mint, rewards=ids),
    "a reward that is not there": lambda mint, ids: replace(mint, rewards=[ids[1], uuid4()]),
}


async def test_an_intent_with_unexpected_nonce_seq_or_rewards_is_refused_as_a_whole(
    pool: Pool, lane: Lane
) -> None:
    ids = await queue_rewards(pool, 2)
    async with session(pool) as connection:
        await transactions.store_signed(connection, lane, an_intent(0, ids[:1]), an_attempt("a"))
        before = await counters(connection)
        for name, change in MISFITS.items():
            wrong_lane, wrong = change(lane, an_intent(1, ids[1:], 1), ids)
            with pytest.raises(LaneLost):
                await transactions.store_signed(connection, wrong_lane, wrong, an_attempt("b"))
            assert await counters(connection) == before, name
        for name, change_rewards in TAKEN.items():
            wrong = change_rewards(an_intent(1, ids[1:], 1), ids)
            with pytest.raises(RewardsTaken):
                await transactions.store_signed(connection, lane, wrong, an_attempt("b"))
            assert await counters(connection) == before, name
            stale = replace(lane, epoch=lane.epoch - 1)
            with pytest.raises(LaneLost):
                await transactions.store_signed(connection, stale, wrong, an_attempt("b"))
        assert await states(pool) == ["signed"]
        await transactions.store_signed(connection, lane, an_intent(1, ids[1:], 1), an_attempt("b"))


async def test_a_minted_reward_is_not_signed_again(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    (reward,) = await queue_rewards(pool, 1)
    await connection.execute(
        "UPDATE rewards SET mint_block_number = 1, mint_block_hash = $1, "
        "mint_transaction_hash = $1",
        a_hash("mint"),
    )
    with pytest.raises(RewardsTaken):
        await transactions.store_signed(connection, lane, an_intent(0, [reward]), an_attempt("a"))


@pytest.mark.parametrize("shares_rewards", [True, False])
async def test_of_concurrent_signatures_of_one_nonce_one_succeeds(
    pool: Pool, lane: Lane, shares_rewards: bool
) -> None:
    """Even if several holders know the counters, no nonce is used twice."""
    ids = await queue_rewards(pool, 1 if shares_rewards else 20)

    async def sign(number: int) -> bool:
        intent = an_intent(0, [ids[0] if shares_rewards else ids[number]])
        async with session(pool) as connection:
            try:
                await transactions.store_signed(connection, lane, intent, an_attempt(f"{number}"))
            except LaneLost:
                return False
        return True

    assert sum(await asyncio.gather(*map(sign, range(20)))) == 1
    assert await states(pool) == ["signed"]
    async with session(pool) as connection:
        assert await counters(connection) == (1, 1)


async def test_a_new_term_fences_off_every_write_of_the_old_holder(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    row = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    new = await a_lane(pool)

    with pytest.raises(LaneLost):
        await transactions.store_signed(connection, lane, an_intent(1), an_attempt("b"))
    with pytest.raises(LaneLost):
        await save(connection, lane, row, State.SIGNED, MINED)
    await save(connection, new, row, State.SIGNED, MINED)


WRITES: dict[str, Callable[[Connection, Lane, int, UUID], Awaitable[object]]] = {
    "store_signed": lambda db, lane, _row, _reward: transactions.store_signed(
        db, lane, an_intent(1), an_attempt("b")
    ),
    "store_attempt": lambda db, lane, row, _reward: transactions.store_attempt(
        db, lane, row, an_attempt("b")
    ),
    "save": lambda db, lane, row, _reward: save(db, lane, row, State.SIGNED, MINED),
    "fail": lambda db, lane, _row, reward: rewards.fail(db, lane, {reward: "bad"}),
    "set_above_limit": lambda db, lane, _row, reward: rewards.set_above_limit(db, lane, [reward]),
    "require_term": lambda db, lane, _row, _reward: lanes.require_term(db, lane),
}


@pytest.mark.parametrize("write", WRITES)
async def test_a_new_term_waits_for_the_holders_open_transaction(
    pool: Pool, connection: Connection, lane: Lane, write: str
) -> None:
    (reward,) = await queue_rewards(pool, 1)
    row = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    async with transaction(pool) as holder:
        await WRITES[write](holder, lane, row, reward)
        taking_over = asyncio.create_task(a_lane(pool))
        await until(lambda: is_blocked(pool, taking_over))
        assert not taking_over.done()
    assert (await taking_over).epoch == lane.epoch + 1


async def test_of_two_lanes_that_store_a_reward_at_once_one_mints_it(
    pool: Pool, lane: Lane
) -> None:
    """LTZ would mint the reward under both references."""
    ids = await queue_rewards(pool, 1)
    async with session(pool) as connection:
        other = await lanes.begin_term(connection, CHAIN_ID, OTHER_WALLET, "mint", 0)
        await lanes.take_word(connection, other, LTZ_AT, LaneReferences())

    async def store() -> int:
        async with session(pool) as connection:
            intent = an_intent(0, ids, REFERENCES_A_WORD)
            return await transactions.store_signed(connection, other, intent, an_attempt("b"))

    async with transaction(pool) as holder:
        row = await transactions.store_signed(holder, lane, an_intent(0, ids), an_attempt("a"))
        storing = asyncio.create_task(store())
        await until(lambda: is_blocked(pool, storing))
    with pytest.raises(RewardsTaken):
        await storing
    assert await value(pool, "SELECT (transaction_id, seq) FROM rewards") == (row, 0)
    assert await states(pool) == ["signed"]


async def is_blocked(pool: Pool, writer: asyncio.Task[Any]) -> bool:
    """Whether a writer waits for a lock, or is done because it waits for none."""
    return writer.done() or await value(pool, WAITS) > 0


async def test_marking_a_transaction_published_is_idempotent(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    await transactions.store_signed(connection, lane, an_intent(1), an_attempt("b"))
    await transactions.mark_published(connection, [a_hash("a")])
    first = await value(pool, "SELECT max(published_at) FROM attempts")

    await transactions.mark_published(connection, [a_hash("a")])
    await transactions.mark_published(connection, [a_hash("nobody's")])

    assert await states(pool) == ["published", "signed"]
    assert await value(pool, "SELECT max(published_at) FROM attempts") == first


async def test_a_late_publication_mark_does_not_change_a_later_state(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    row = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    await save(connection, lane, row, State.SIGNED, MINED)

    await transactions.mark_published(connection, [a_hash("a")])

    assert await states(pool) == ["mined"]
    assert await value(pool, "SELECT published_at IS NOT NULL FROM attempts")


WRONG = [
    (State.SIGNED, State.MINED),
    (State.PUBLISHED, State.MINED),
    (State.MINED, State.SIGNED),
    (State.MINED, State.PUBLISHED),
    (State.CONFIRMED, State.PUBLISHED),
    (State.CONFIRMED, State.MINED),
    (State.REVERTED, State.MINED),
    (State.DISPLACED, State.SIGNED),
]
"""Pairs of a row's state and the state that an outdated lane expects."""


async def test_saving_from_an_outdated_state_raises_and_changes_nothing(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    row = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    for state, was in WRONG:
        inclusion = PLACE if state in {State.MINED, State.CONFIRMED, State.REVERTED} else None
        await connection.execute(
            "UPDATE transactions SET state = $1, block_number = $2, block_hash = $3",
            state.value,
            inclusion and inclusion.block_number,
            inclusion and inclusion.block_hash,
        )
        with pytest.raises(LaneLost):
            await save(connection, lane, row, was, MINED)
        assert await states(pool) == [state.value]


async def test_a_transaction_may_be_mined_before_its_publication_is_marked(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    row = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    await save(connection, lane, row, State.PUBLISHED, MINED)

    assert await states(pool) == ["mined"]


async def test_transactions_are_saved_together_or_not_at_all(pool: Pool, lane: Lane) -> None:
    async with session(pool) as connection:
        rows = [
            await transactions.store_signed(connection, lane, an_intent(n), an_attempt(f"{n}"))
            for n in range(5)
        ]
        flight = await transactions.in_flight(connection, lane)
        moves = [(tx.tx, structs.replace(tx, tx=MINED)) for tx in flight]
        await save(connection, lane, rows[3], State.SIGNED, MINED)

    async def save_all() -> None:
        async with transaction(pool) as connection:
            await transactions.save(connection, lane, moves)

    with pytest.raises(LaneLost):
        await save_all()
    assert await states(pool) == ["signed", "signed", "signed", "mined", "signed"]

    del moves[3]
    await save_all()
    assert await states(pool) == ["mined"] * 5


async def test_times_and_inclusion_follow_the_state(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    async def row() -> asyncpg.Record:
        return await connection.fetchrow(
            "SELECT state, block_number, block_hash, succeeded, "
            "mined_at IS NOT NULL AS mined, settled_at IS NOT NULL AS settled FROM transactions"
        )

    row_id = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    await save(connection, lane, row_id, State.SIGNED, MINED)
    assert tuple(await row()) == ("mined", 5, PLACE.block_hash, True, True, False)
    await save(connection, lane, row_id, State.MINED, Transaction(State.PUBLISHED))
    assert tuple(await row()) == ("published", None, None, None, False, False)
    await save(connection, lane, row_id, State.PUBLISHED, MINED)
    confirmed = Transaction(State.CONFIRMED, PLACE)
    await save(connection, lane, row_id, State.MINED, confirmed)
    assert tuple(await row()) == ("confirmed", 5, PLACE.block_hash, True, True, True)


async def test_only_this_lanes_unmined_transactions_are_in_flight_in_order(
    connection: Connection, lane: Lane
) -> None:
    other = await lanes.begin_term(connection, CHAIN_ID, OTHER_WALLET, "mint", 0)
    for nonce in (0, 1, 2):
        await transactions.store_signed(connection, lane, an_intent(nonce), an_attempt(f"{nonce}"))
    none = LaneReferences()
    elsewhere = replace(an_intent(0), references=none, references_after=none)
    await transactions.store_signed(connection, other, elsewhere, an_attempt("other"))
    flight = await transactions.in_flight(connection, lane)
    await save(connection, lane, flight[1].id, State.SIGNED, MINED)

    assert [tx.nonce for tx in flight] == [0, 1, 2]
    assert [tx.nonce for tx in await transactions.in_flight(connection, lane)] == [0, 2]


async def test_a_mined_transaction_is_settled_when_it_is_final_or_not_indexed(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    node = FakeNode()
    await follow(pool, node)
    ids = await queue_rewards(pool, 2)
    indexed = Inclusion(1, a_hash("indexed"), succeeded=True)
    orphaned = Inclusion(1, a_hash("orphaned"), succeeded=False)
    for nonce, inclusion in enumerate((indexed, orphaned)):
        row = await transactions.store_signed(
            connection,
            lane,
            an_intent(nonce, ids[nonce : nonce + 1], nonce),
            an_attempt(f"{nonce}"),
        )
        await save(connection, lane, row, State.SIGNED, Transaction(State.MINED, inclusion))
    block = BlockRow(1, indexed.block_hash, node.blocks[0].hash, 1_700_000_001)
    await chains.insert_blocks(connection, [block])
    epoch = await chains.begin_term(connection, CHAIN_ID)
    await chains.move_cursor(
        connection, CHAIN_ID, epoch, node.blocks[0].hash, (1, indexed.block_hash), 1
    )

    (only,) = await settlement.mined_to_settle(connection, lane, 10)
    assert (only.transaction.nonce, only.is_indexed, only.is_past_finality) == (1, False, False)
    assert only.unminted == 0, "a reverted mint owes nothing to its references"

    await chains.raise_finality(connection, CHAIN_ID, epoch, 1)
    judged = await settlement.mined_to_settle(connection, lane, 10)
    assert [(each.transaction.nonce, each.is_indexed, each.unminted) for each in judged] == [
        (0, True, 1),
        (1, False, 0),
    ]
    assert all(each.is_past_finality for each in judged)
    assert len(await settlement.mined_to_settle(connection, lane, 1)) == 1


async def test_transactions_that_wait_for_finality_are_not_read_with_each_block(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    """This holds with and without planner statistics."""
    node = FakeNode()
    await follow(pool, node)
    blocks = [
        BlockRow(n, a_hash(f"{n}"), a_hash(f"{n - 1}"), 1_700_000_000 + n) for n in range(1, 41)
    ]
    await chains.insert_blocks(connection, blocks)
    epoch = await chains.begin_term(connection, CHAIN_ID)
    head = (40, blocks[-1].hash)
    await chains.move_cursor(connection, CHAIN_ID, epoch, node.blocks[0].hash, head, 40)
    await connection.execute(
        """
        INSERT INTO transactions (chain_id, wallet, nonce, kind, to_address, data, gas_limit, state,
                                  succeeded, block_number, block_hash)
        SELECT $1, $2, n, 'relay', $2, '', 50000, 'mined', true, blocks.number, blocks.hash
          FROM generate_series(0, 3999) AS n
          JOIN blocks ON blocks.number = 1 + n / 100
        """,
        lane.chain_id,
        lane.wallet,
    )
    await connection.execute(
        """
        INSERT INTO attempts (hash, transaction_id, raw, max_fee_per_gas, max_priority_fee_per_gas)
        SELECT int8send(id), id, '', 1, 1 FROM transactions
        """
    )
    for _ in range(2):
        explained = Explained(connection)
        assert await settlement.mined_to_settle(cast("Connection", explained), lane, 256) == []
        assert explained.read < 300
        await connection.execute("ANALYZE")

    await chains.raise_finality(connection, CHAIN_ID, epoch, 2)
    due = await settlement.mined_to_settle(connection, lane, 256)
    assert [each.transaction.nonce for each in due] == list(range(200))


async def test_an_indexed_mint_gives_its_transactions_inclusion(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    ids = await queue_rewards(pool, 3)
    for nonce in range(3):
        intent = an_intent(nonce, ids[nonce : nonce + 1], nonce)
        await transactions.store_signed(connection, lane, intent, an_attempt(f"{nonce}"))
    others = ((1, a_hash("0")), (2, a_hash("somebody else's")))
    for nonce, indexed_hash in ((0, a_hash("0")), *others):
        await connection.execute(
            "UPDATE rewards SET mint_block_number = 5, mint_block_hash = $2, "
            "mint_transaction_hash = $3 WHERE seq = $1",
            nonce,
            PLACE.block_hash,
            indexed_hash,
        )

    assert await transactions.indexed_inclusions(connection, lane) == {0: PLACE}

    (first, *_) = await transactions.in_flight(connection, lane)
    await save(connection, lane, first.id, State.SIGNED, MINED)
    assert await transactions.indexed_inclusions(connection, lane) == {}


# --- replacements -----------------------------------------------------------------------------


def dearer(text: str, fee: int) -> Attempt:
    return Attempt(a_hash(text), text.encode(), Fees(fee * GWEI, 2 * GWEI))


async def test_a_replacement_is_the_newest_attempt_and_all_attempts_are_watched(
    connection: Connection, lane: Lane
) -> None:
    row = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    assert await transactions.read_call(connection, row) == (LTZ_AT, b"\x01")
    await transactions.store_attempt(connection, lane, row, dearer("b", 4))
    await transactions.store_attempt(connection, lane, row, dearer("c", 5))

    (tx,) = await transactions.in_flight(connection, lane)
    assert tx.hashes == (a_hash("c"), a_hash("b"), a_hash("a"))
    assert (tx.raw, tx.fees) == (b"c", Fees(5 * GWEI, 2 * GWEI))
    assert tx.max_cost_wei == 100_000 * 5 * GWEI


async def test_the_newest_attempt_is_found_by_its_fees_even_if_clocks_jump(
    connection: Connection, lane: Lane
) -> None:
    row = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    await transactions.store_attempt(connection, lane, row, dearer("b", 4))
    await connection.execute(
        "UPDATE attempts SET created_at = now() - interval '1 hour' WHERE hash = $1", a_hash("b")
    )

    (tx,) = await transactions.in_flight(connection, lane)
    assert (tx.hashes[0], tx.raw) == (a_hash("b"), b"b")


async def test_a_replacement_by_an_ended_term_is_not_stored(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    row = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    new = await a_lane(pool)

    with pytest.raises(LaneLost):
        await transactions.store_attempt(connection, lane, row, dearer("b", 4))
    assert await value(pool, "SELECT count(*) FROM attempts") == 1
    await transactions.store_attempt(connection, new, row, dearer("b", 4))


async def test_a_mined_or_settled_transaction_is_not_replaced(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    row = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    await save(connection, lane, row, State.SIGNED, MINED)

    with pytest.raises(LaneLost):
        await transactions.store_attempt(connection, lane, row, dearer("b", 4))
    confirmed = Transaction(State.CONFIRMED, PLACE)
    await save(connection, lane, row, State.MINED, confirmed)
    with pytest.raises(LaneLost):
        await transactions.store_attempt(connection, lane, row, dearer("b", 4))
    assert await value(pool, "SELECT count(*) FROM attempts") == 1


async def test_an_indexed_mint_by_any_attempt_gives_the_inclusion(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    (reward,) = await queue_rewards(pool, 1)
    row = await transactions.store_signed(connection, lane, an_intent(0, [reward]), an_attempt("a"))
    await transactions.store_attempt(connection, lane, row, dearer("b", 4))
    await connection.execute(
        "UPDATE rewards SET mint_block_number = 5, mint_block_hash = $1, "
        "mint_transaction_hash = $2",
        PLACE.block_hash,
        a_hash("a"),
    )
    assert await transactions.indexed_inclusions(connection, lane) == {0: PLACE}


async def test_has_reverted_holds_until_the_revert_is_final(
    connection: Connection, lane: Lane
) -> None:
    row = await transactions.store_signed(connection, lane, an_intent(0), an_attempt("a"))
    other = await lanes.begin_term(connection, CHAIN_ID, OTHER_WALLET, "mint", 0)
    reverted = Inclusion(5, a_hash("block"), succeeded=False)
    await save(connection, lane, row, State.SIGNED, MINED)
    assert not await transactions.has_reverted(connection, lane)

    cancelled = Inclusion(5, a_hash("block"), succeeded=False, is_cancellation=True)
    await save(connection, lane, row, State.MINED, Transaction(State.MINED, cancelled))
    assert not await transactions.has_reverted(connection, lane)

    await save(connection, lane, row, State.MINED, Transaction(State.MINED, reverted))
    assert await transactions.has_reverted(connection, lane)
    assert not await transactions.has_reverted(connection, other)
    await save(connection, lane, row, State.MINED, Transaction(State.REVERTED, reverted))
    assert not await transactions.has_reverted(connection, lane)


async def test_a_mint_that_reverted_with_its_gas_used_up_ran_out_of_gas(
    connection: Connection, lane: Lane
) -> None:
    mint = replace(an_intent(0), gas_limit=64_000)
    row = await transactions.store_signed(connection, lane, mint, an_attempt("a"))
    assert not await transactions.has_run_out_of_gas(connection, lane)

    await save(connection, lane, row, State.SIGNED, MINED)

    async def ran_out(gas_used: int, *, succeeded: bool = False, cancelled: bool = False) -> bool:
        cost = GasCost(a_hash("a"), gas_used, GWEI, 0)
        inclusion = Inclusion(5, a_hash("block"), succeeded, cost, cancelled)
        await save(connection, lane, row, State.MINED, Transaction(State.MINED, inclusion))
        return await transactions.has_run_out_of_gas(connection, lane)

    assert await ran_out(63_000)
    assert not await ran_out(62_999)
    assert not await ran_out(63_000, succeeded=True)
    assert not await ran_out(63_000, cancelled=True)


async def test_a_mined_transaction_that_a_reorg_may_undo_carries_its_ltz(
    pool: Pool, connection: Connection, lane: Lane
) -> None:
    await follow(pool, FakeNode())
    ids = await queue_rewards(pool, 2)
    row = await transactions.store_signed(connection, lane, an_intent(0, ids), an_attempt("a"))
    await save(connection, lane, row, State.SIGNED, MINED)

    (orphaned,) = await settlement.mined_to_settle(connection, lane, 10)
    assert orphaned.transaction.ltz == 200

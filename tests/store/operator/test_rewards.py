"""The queue of rewards: its order, requeued and failed rewards, the mint limit, paused brands."""

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from ltzd.rules.operator.fees import GWEI, Fees
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.operator import rewards, transactions
from ltzd.store.operator.transactions import Attempt, RewardsTaken
from ltzd.store.wakeups import REWARDS
from ltzd.values import ZERO_ADDRESS, Address, Hash32
from tests.support.rows.core import (
    BRAND,
    a_hash,
    a_lane,
    an_attempt,
    an_intent,
    queue_reward,
    queue_rewards,
    value,
)

OTHER_BRAND = Address(b"\x0b" * 20)
A_BRAND, B_BRAND, C_BRAND = (Address(bytes([byte]) * 20) for byte in (0xA, 0xB, 0xC))


async def ids_queued(pool: Pool, limit: int = 100) -> list[UUID]:
    async with session(pool) as connection:
        return [reward.id for reward in await rewards.queued(connection, limit)]


async def mint(connection: Connection, reward: UUID, transaction_hash: Hash32) -> None:
    """Records the reward's mint as the indexer does."""
    await connection.execute(
        "UPDATE rewards SET mint_block_number = 1, mint_block_hash = $2, "
        "mint_transaction_hash = $3 WHERE id = $1",
        reward,
        a_hash("block"),
        transaction_hash,
    )


async def test_the_oldest_rewards_leave_the_queue_first(pool: Pool) -> None:
    ids = await queue_rewards(pool, 5)

    assert await ids_queued(pool, 2) == ids[:2]
    assert await ids_queued(pool) == ids


# --- turns --------------------------------------------------------------------------------------


async def waiting(pool: Pool, limit: int = 100, **parameters: Any) -> list[UUID]:
    async with session(pool) as connection:
        return [reward.id for reward in await rewards.queued(connection, limit, **parameters)]


async def pay(pool: Pool, brand: Address = ZERO_ADDRESS) -> UUID:
    async with transaction(pool) as connection:
        return await queue_reward(connection, kind=2, brand=brand)


async def test_brands_take_turns_and_each_contributes_its_oldest_reward(pool: Pool) -> None:
    many = await queue_for(pool, A_BRAND, 5)
    two = await queue_for(pool, B_BRAND, 2)
    late = await queue_for(pool, C_BRAND, 1)

    assert await waiting(pool) == [
        *(many[0], two[0], late[0]),
        *(many[1], two[1]),
        *many[2:],
    ]
    assert await waiting(pool, 4) == [many[0], two[0], late[0], many[1]]


@pytest.mark.parametrize("paused", [False, True])
async def test_the_rotation_continues_after_the_brand_that_was_last(
    pool: Pool, paused: bool
) -> None:
    if paused:
        await add_brand(pool, Address(b"\x0a" * 19 + b"\xff"), is_paused=True)
        await queue_for(pool, Address(b"\x0a" * 19 + b"\xff"), 200)
    (a,), (b,), (c,) = [await queue_for(pool, brand) for brand in (A_BRAND, B_BRAND, C_BRAND)]

    assert await waiting(pool, after=A_BRAND) == [b, c, a]
    assert await waiting(pool, after=B_BRAND) == [c, a, b]
    assert await waiting(pool, after=C_BRAND) == [a, b, c]
    assert await waiting(pool, after=b"\x0a" * 19) == [a, b, c]
    assert await waiting(pool, after=b"\xff" * 20) == [a, b, c]


async def test_payments_come_first_for_every_brand_and_at_any_age(pool: Pool) -> None:
    many = await queue_for(pool, A_BRAND, 3)
    first, second = await pay(pool), await pay(pool, B_BRAND)
    late = await queue_for(pool, B_BRAND, 1)

    assert await waiting(pool) == [first, second, many[0], late[0], *many[1:]]


async def test_the_reward_being_saved_for_comes_before_the_rotation_and_only_once(
    pool: Pool,
) -> None:
    many = await queue_for(pool, A_BRAND, 2)
    saving = await queue_for(pool, C_BRAND, 2)
    paid = await pay(pool)

    assert await waiting(pool, saving_for=saving[0]) == [
        paid,
        saving[0],
        many[0],
        saving[1],
        many[1],
    ]
    assert await waiting(pool, saving_for=paid) == [paid, many[0], saving[0], many[1], saving[1]]
    await add_brand(pool, C_BRAND, is_paused=True)
    assert await waiting(pool, saving_for=saving[0]) == [paid, *many]


async def test_a_reward_being_saved_for_is_queued_only_while_it_waits(pool: Pool) -> None:
    tied, minted, failed, set_aside = ids = await queue_rewards(pool, 4)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        await transactions.store_signed(connection, lane, an_intent(0, [tied]), an_attempt("a"))
        await mint(connection, minted, a_hash("a"))
        await rewards.fail(connection, lane, {failed: "no reason"})
        await rewards.set_above_limit(connection, lane, [set_aside])
    assert [await waiting(pool, saving_for=reward) for reward in ids] == [[]] * 4


async def test_with_many_brands_a_hundred_have_a_turn_before_the_next_hundred(pool: Pool) -> None:
    brands = [Address(number.to_bytes(20, "big")) for number in range(1, 251)]
    ids = [(await queue_for(pool, brand))[0] for brand in brands]
    twice = await queue_for(pool, brands[0], 1)

    first = await waiting(pool)
    assert first == ids[:100]
    second = await waiting(pool, after=brands[99])
    third = await waiting(pool, after=brands[199])
    assert second == ids[100:200]
    assert third == [*ids[200:], *ids[:50]]
    assert twice[0] not in first + second + third, "each brand has one turn before the second"


@pytest.mark.parametrize("obstacle", ["minted", "above the limit", "passed over", "payments"])
async def test_brands_without_a_reward_for_their_turn_have_no_turn(
    pool: Pool, obstacle: str
) -> None:
    """Else a hundred such brands would keep the turn from everybody behind them.

    After a restore the index tells rewards of mints that the database knows nothing of.
    """
    brands = [Address(number.to_bytes(20, "big")) for number in range(1, 152)]
    kind = 2 if obstacle == "payments" else 1
    async with transaction(pool) as connection:
        ids = [await queue_reward(connection, brand=brand, kind=kind) for brand in brands[:150]]
    (owed,) = await queue_for(pool, brands[150])
    if obstacle == "minted":
        async with session(pool) as connection:
            for id_ in ids:
                await mint(connection, id_, a_hash("a"))
    elif obstacle == "above the limit":
        async with session(pool) as connection:
            await rewards.set_above_limit(connection, await a_lane(pool), ids)
    passed_over = ids if obstacle == "passed over" else []

    for after in (b"", brands[10], brands[150]):
        queued = await waiting(pool, after=after, passed_over=passed_over)
        assert queued == [*(ids[:100] if obstacle == "payments" else []), owed]


async def test_a_new_term_continues_after_the_brand_of_the_last_reference(pool: Pool) -> None:
    lane = await a_lane(pool)
    (a,) = await queue_for(pool, A_BRAND)
    (b,) = await queue_for(pool, B_BRAND)
    paid = await pay(pool)
    async with session(pool) as connection:
        assert await rewards.last_brand(connection, 0) == b""
        intent = an_intent(0, [b, a, paid])
        await transactions.store_signed(connection, lane, intent, an_attempt("a"))
        assert await rewards.last_brand(connection, 3) == A_BRAND
        assert await rewards.last_brand(connection, 1) == B_BRAND


# --- above the mint limit -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [1, 2])
async def test_a_reward_above_the_mint_limit_leaves_the_queue_until_the_limit_is_high_enough(
    pool: Pool, kind: int
) -> None:
    async with transaction(pool) as connection:
        ids = [await queue_reward(connection, kind=kind) for _ in range(3)]
    await value(pool, "UPDATE rewards SET ltz = 500 WHERE id = $1", ids[0])
    lane = await a_lane(pool)
    async with session(pool) as connection:
        assert await rewards.set_above_limit(connection, lane, [ids[0], uuid4()]) == [ids[0]]
        assert await rewards.set_above_limit(connection, lane, [ids[0]]) == []
        assert await waiting(pool) == ids[1:]

        assert await rewards.set_within_limit(connection, lane, 499, 10) == 0
        assert await rewards.set_within_limit(connection, lane, 500, 10) == 1
    assert await waiting(pool) == ids, "the reward has its old place"


async def test_a_raised_mint_limit_requeues_a_bounded_number_of_rewards_at_a_time(
    pool: Pool,
) -> None:
    ids = await queue_for(pool, A_BRAND, 5)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        await rewards.set_above_limit(connection, lane, ids)
        counts = [await rewards.set_within_limit(connection, lane, 10**9, 2) for _ in range(4)]
    assert counts == [2, 2, 1, 0]


async def test_an_ended_term_neither_sets_rewards_aside_nor_requeues_them(pool: Pool) -> None:
    first, other = await queue_for(pool, A_BRAND, 2)
    old = await a_lane(pool)
    async with session(pool) as connection:
        await rewards.set_above_limit(connection, old, [first])
        await a_lane(pool)
        assert await rewards.set_above_limit(connection, old, [other]) == []
        assert await rewards.set_within_limit(connection, old, 10**9, 10) == 0
    assert await waiting(pool) == [other]


async def test_a_reward_with_a_transaction_a_mint_or_a_failure_is_not_above_the_limit(
    pool: Pool,
) -> None:
    tied, minted, failed = ids = await queue_rewards(pool, 3)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        await transactions.store_signed(connection, lane, an_intent(0, [tied]), an_attempt("a"))
        await mint(connection, minted, a_hash("a"))
        await rewards.fail(connection, lane, {failed: "no reason"})
        assert await rewards.set_above_limit(connection, lane, ids) == []


async def test_a_reward_with_a_transaction_or_a_mint_is_not_queued(pool: Pool) -> None:
    tied, minted, waiting = await queue_rewards(pool, 3)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        await transactions.store_signed(connection, lane, an_intent(0, [tied]), an_attempt("a"))
        await mint(connection, minted, a_hash("a"))

    assert await ids_queued(pool) == [waiting]


async def test_a_requeued_reward_keeps_its_reference_and_its_place(pool: Pool) -> None:
    ids = await queue_rewards(pool, 3)
    lane = await a_lane(pool, first_seq=5)
    async with session(pool) as connection:
        intent = an_intent(0, ids[:2], 5)
        row = await transactions.store_signed(connection, lane, intent, an_attempt("a"))

        assert await rewards.requeue(connection, row) == 2
        assert await rewards.requeue(connection, row) == 0

        again = await rewards.queued(connection, 9)
    assert [(reward.id, reward.seq) for reward in again] == [
        (ids[0], 5),
        (ids[1], 6),
        (ids[2], None),
    ]


async def test_a_minted_reward_is_never_requeued(pool: Pool) -> None:
    ids = await queue_rewards(pool, 2)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        intent = an_intent(0, ids)
        row = await transactions.store_signed(connection, lane, intent, an_attempt("a"))
        await mint(connection, ids[0], a_hash("a"))

        assert await rewards.requeue(connection, row) == 1
    assert await ids_queued(pool) == [ids[1]]


async def test_a_hash_is_shown_once_it_is_published_or_minted(pool: Pool) -> None:
    signed, published, minted, queued = await queue_rewards(pool, 4)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        for nonce, reward in enumerate((signed, published, minted)):
            intent = an_intent(nonce, [reward], nonce)
            await transactions.store_signed(connection, lane, intent, an_attempt(f"{nonce}"))
        await transactions.mark_published(connection, [a_hash("1")])
        await mint(connection, minted, a_hash("another transaction"))
        shown = await rewards.published_hashes(
            connection, [signed, published, minted, queued, uuid4()]
        )
    assert shown == {published: a_hash("1"), minted: a_hash("another transaction")}


async def test_of_several_attempts_the_newest_published_hash_is_shown(pool: Pool) -> None:
    (reward,) = await queue_rewards(pool, 1)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        row = await transactions.store_signed(
            connection, lane, an_intent(0, [reward]), an_attempt("first")
        )
        for text, fee in (("second", 4), ("third", 5)):
            dearer = Attempt(a_hash(text), text.encode(), Fees(fee * GWEI, 2 * GWEI))
            await transactions.store_attempt(connection, lane, row, dearer)
        await transactions.mark_published(connection, [a_hash("second")])
        await transactions.mark_published(connection, [a_hash("first")])

        assert await rewards.published_hashes(connection, [reward]) == {reward: a_hash("second")}
        await mint(connection, reward, a_hash("first"))
        assert await rewards.published_hashes(connection, [reward]) == {reward: a_hash("first")}


# --- failed rewards ---------------------------------------------------------------------------


async def test_a_failed_reward_is_not_queued_until_it_is_requeued(pool: Pool) -> None:
    bad, good = await queue_rewards(pool, 2)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        assert await rewards.fail(connection, lane, {bad: "ERC20InvalidReceiver"}) == [bad]
        assert await ids_queued(pool) == [good]
        assert await value(pool, "SELECT failed_at <= now() FROM rewards WHERE id = $1", bad)

        assert await rewards.retry(connection, bad)
        (first, second) = await rewards.queued(connection, 9)
    assert (first.id, first.has_failed) == (bad, True), "and it has its old place"
    assert (second.id, second.has_failed) == (good, False)


async def test_a_reward_fails_once_and_is_requeued_once(pool: Pool) -> None:
    (bad,) = await queue_rewards(pool, 1)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        assert not await rewards.retry(connection, bad)
        assert await rewards.fail(connection, lane, {bad: "first"}) == [bad]
        assert await rewards.fail(connection, lane, {bad: "second"}) == []
        assert await value(pool, "SELECT failure FROM rewards") == "first"
        assert await rewards.retry(connection, bad)
        assert not await rewards.retry(connection, bad)
        assert not await rewards.retry(connection, uuid4())


async def test_a_reward_with_a_transaction_or_a_mint_cannot_fail(pool: Pool) -> None:
    tied, minted = await queue_rewards(pool, 2)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        await transactions.store_signed(connection, lane, an_intent(0, [tied]), an_attempt("a"))
        await mint(connection, minted, a_hash("a"))
        reasons = dict.fromkeys((tied, minted, uuid4()), "no reason")

        assert await rewards.fail(connection, lane, reasons) == []


async def test_an_ended_term_fails_no_reward(pool: Pool) -> None:
    (bad,) = await queue_rewards(pool, 1)
    old = await a_lane(pool)
    await a_lane(pool)
    async with session(pool) as connection:
        assert await rewards.fail(connection, old, {bad: "no reason"}) == []
    assert await ids_queued(pool) == [bad]


async def test_a_failed_reward_is_not_signed(pool: Pool) -> None:
    bad, good = await queue_rewards(pool, 2)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        await rewards.fail(connection, lane, {bad: "no reason"})
        intent = an_intent(0, [bad, good])
        with pytest.raises(RewardsTaken):
            await transactions.store_signed(connection, lane, intent, an_attempt("a"))
    assert await value(pool, "SELECT count(*) FROM transactions") == 0


async def test_requeueing_a_failed_reward_wakes_the_lane(pool: Pool, database_url: str) -> None:
    (bad,) = await queue_rewards(pool, 1)
    lane = await a_lane(pool)
    woken = asyncio.Event()
    async with session(pool) as listener, session(pool) as connection:
        await listener.add_listener(REWARDS, lambda *_: woken.set())
        await rewards.fail(connection, lane, {bad: "no reason"})
        await rewards.retry(connection, bad)
        async with asyncio.timeout(20):
            await woken.wait()
        await listener.reset()


# --- paused brands ----------------------------------------------------------------------------


async def add_brand(pool: Pool, brand: Address, *, is_paused: bool) -> None:
    async with transaction(pool) as connection:
        await connection.execute(
            """
            INSERT INTO brands (id, name, configuration, revision, paused_at)
            VALUES ($1, 'A brand', '{}', 1, CASE WHEN $2 THEN now() END)
                ON CONFLICT (id) DO UPDATE SET paused_at = excluded.paused_at
            """,
            brand,
            is_paused,
        )


async def queue_for(pool: Pool, brand: Address, count: int = 1) -> list[UUID]:
    async with transaction(pool) as connection:
        return [await queue_reward(connection, brand=brand) for _ in range(count)]


async def test_rewards_of_a_paused_brand_wait_until_it_is_resumed(pool: Pool) -> None:
    await add_brand(pool, BRAND, is_paused=True)
    await add_brand(pool, OTHER_BRAND, is_paused=False)
    waiting = await queue_for(pool, BRAND, 2)
    others = await queue_for(pool, OTHER_BRAND, 2)
    late = await queue_for(pool, BRAND)
    assert await ids_queued(pool) == others

    await add_brand(pool, BRAND, is_paused=False)
    assert await ids_queued(pool) == [others[0], waiting[0], others[1], waiting[1], *late]


async def test_a_payment_of_a_paused_brand_waits_too(pool: Pool) -> None:
    await add_brand(pool, BRAND, is_paused=True)
    paused, other = await pay(pool, BRAND), await pay(pool, OTHER_BRAND)
    assert await ids_queued(pool) == [other]

    await add_brand(pool, BRAND, is_paused=False)
    assert await ids_queued(pool) == [paused, other]


async def test_while_one_brand_is_paused_the_others_take_turns(pool: Pool) -> None:
    await add_brand(pool, BRAND, is_paused=True)
    brands = [Address(bytes([number]) * 20) for number in (1, 2, 3)]
    await queue_for(pool, BRAND, 3)
    expected = [(await queue_for(pool, brands[number % 3]))[0] for number in range(12)]

    assert await ids_queued(pool, 7) == expected[:7]


async def test_an_unknown_brand_is_not_paused(pool: Pool) -> None:
    await add_brand(pool, BRAND, is_paused=True)
    await queue_for(pool, BRAND)
    unknown = await queue_for(pool, OTHER_BRAND, 2)

    assert await ids_queued(pool) == unknown


async def test_when_all_brands_are_paused_nothing_is_queued(pool: Pool) -> None:
    await add_brand(pool, BRAND, is_paused=True)
    await add_brand(pool, OTHER_BRAND, is_paused=True)
    await queue_for(pool, BRAND)
    await queue_for(pool, OTHER_BRAND)

    assert await ids_queued(pool) == []


@pytest.mark.parametrize("after", [b"", A_BRAND, OTHER_BRAND, BRAND, b"\xff"])
@pytest.mark.parametrize("is_paused", [True, False])
@pytest.mark.parametrize("are_statistics_old", [True, False])
async def test_a_brands_backlog_is_never_scanned(
    pool: Pool, is_paused: bool, after: bytes, are_statistics_old: bool
) -> None:
    """Ten thousand rewards of one brand are at the head of the queue.

    Old statistics are those of a table whose rewards are all minted.
    """
    await add_brand(pool, BRAND, is_paused=is_paused)
    async with session(pool) as connection:
        await connection.execute(
            """
            INSERT INTO rewards (id, kind, brand_id, wallet, ltz)
            SELECT gen_random_uuid(), 1, $1, $2, 1 FROM generate_series(1, 10000)
            """,
            BRAND,
            bytes(20),
        )
        others = await queue_for(pool, OTHER_BRAND, 3)
        if are_statistics_old:
            async with connection.transaction():
                await connection.execute("UPDATE rewards SET above_limit = true")
                await connection.execute("ANALYZE rewards")
                await connection.execute("UPDATE rewards SET above_limit = false")
            await connection.execute("VACUUM rewards")
        else:
            await connection.execute("ANALYZE rewards")
        await connection.execute("ANALYZE brands")
        # The pool's sessions plan each statement once, for any parameters.
        await connection.execute(
            f"PREPARE queued (int, bytea, int, uuid, bytea, bytea, bytea[], uuid[]) "
            f"AS {rewards.QUEUED}"
        )
        literals = f"100, '\\x{after.hex()}', 100, NULL, '\\x{'ff' * 21}', '', '{{}}', '{{}}'"
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE queued ({literals})"
        (row,) = await connection.fetch(explain)
    ids = set(await waiting(pool, after=after))
    assert ids.issuperset(others)
    assert len(ids) == (3 if is_paused else 100)
    assert rows_read(json.loads(row[0])[0]["Plan"]) < (100 if is_paused else 900)


def rows_read(plan: dict[str, Any]) -> float:
    """Sums the rows read by all scans of the plan, including those that a filter removed."""
    own = 0.0
    if "Scan" in plan["Node Type"]:
        filtered = plan.get("Rows Removed by Filter", 0)
        own = (plan["Actual Rows"] + filtered) * plan["Actual Loops"]
    return own + sum(map(rows_read, plan.get("Plans", [])))


async def test_held_brands_are_passed_over_and_their_payments_are_not(pool: Pool) -> None:
    held = await queue_for(pool, BRAND, 3)
    others = await queue_for(pool, OTHER_BRAND, 2)
    async with session(pool) as connection:
        payment = await queue_reward(connection, kind=2, brand=BRAND)
    assert await waiting(pool, held=[BRAND]) == [payment, *others]
    assert await waiting(pool, held=[BRAND], saving_for=held[0]) == [payment, *others]
    assert set(await waiting(pool)) == {payment, *held, *others}


async def test_rewards_that_are_passed_over_take_no_place_and_no_turn_of_others(pool: Pool) -> None:
    async with session(pool) as connection:
        payments = [await queue_reward(connection, kind=2, brand=BRAND) for _ in range(2)]
    mine, others = await queue_for(pool, BRAND, 2), await queue_for(pool, OTHER_BRAND, 1)
    passed_over = [payments[0], *mine]
    assert await waiting(pool, 1, passed_over=passed_over) == [payments[1], *others]
    saving = await waiting(pool, 1, passed_over=passed_over, saving_for=mine[0])
    assert saving == [payments[1], *others]
    assert await waiting(pool, passed_over=[*payments, mine[0]]) == [*others, mine[1]]


async def a_cancelled_mint(pool: Pool) -> tuple[UUID, int, Attempt]:
    """A reward whose mint was signed, and the published self-transfer that replaced the mint."""
    (reward,) = await queue_rewards(pool, 1)
    lane = await a_lane(pool)
    empty = Attempt(a_hash("empty"), b"empty", Fees(9 * GWEI, GWEI), is_cancellation=True)
    async with session(pool) as connection:
        row = await transactions.store_signed(
            connection, lane, an_intent(0, [reward]), an_attempt("mint")
        )
        await transactions.store_attempt(connection, lane, row, empty)
        await transactions.mark_published(connection, [empty.hash])
    return reward, row, empty


async def test_a_self_transfers_hash_is_never_shown_as_a_mint_hash(pool: Pool) -> None:
    reward, _, _ = await a_cancelled_mint(pool)
    async with session(pool) as connection:
        assert await rewards.published_hashes(connection, [reward]) == {}
        await transactions.mark_published(connection, [a_hash("mint")])
        assert await rewards.published_hashes(connection, [reward]) == {reward: a_hash("mint")}


async def test_a_reward_of_a_cancelled_mint_is_requeued_with_its_seq_and_counts_the_cancellation(
    pool: Pool,
) -> None:
    reward, row, _ = await a_cancelled_mint(pool)
    async with session(pool) as connection:
        assert await rewards.requeue(connection, row, is_cancelled=True) == 1
        (waiting,) = await rewards.queued(connection, 9)
    assert (waiting.id, waiting.seq) == (reward, 0)
    assert (waiting.cancelled, waiting.out_of_gas) == (1, 0)


async def test_a_self_transfer_is_the_newest_attempt_at_any_fee(pool: Pool) -> None:
    """At the fee cap the self-transfer pays no more than the attempt before it."""
    (reward,) = await queue_rewards(pool, 1)
    lane = await a_lane(pool)
    call = an_attempt("mint")
    empty = Attempt(a_hash("empty"), b"empty", call.fees, is_cancellation=True)
    async with session(pool) as connection:
        intent = an_intent(0, [reward])
        row = await transactions.store_signed(connection, lane, intent, call)
        await transactions.store_attempt(connection, lane, row, empty)
        (tx,) = await transactions.in_flight(connection, lane)
    assert (tx.raw, tx.hashes, tx.cancellations) == (
        b"empty",
        (empty.hash, call.hash),
        (empty.hash,),
    )
    assert tx.tx.is_abandoned
    assert tx.max_cost_wei == intent.gas_limit * call.fees.max_fee_per_gas, (
        "the call may still be mined"
    )

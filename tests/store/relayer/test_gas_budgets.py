"""The sums of a day's gas follow the states of its relays."""

from datetime import timedelta
from decimal import Decimal

import asyncpg
import pytest

from ltzd.rules.operator.transactions import GasCost, Inclusion, State, Transaction
from ltzd.rules.relayer.admission import NewRelay
from ltzd.rules.relayer.gas_budgets import GasBudgets, GasSpent
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator.lanes import Lane
from ltzd.store.relayer import gas_budgets, relays
from ltzd.store.relayer.gas_budgets import GasChange
from ltzd.values import Address, hex_of
from tests.support.relays.lanes import (
    MAX_COST_WEI,
    OTHER_USER,
    USER,
    a_plan,
    a_relay,
    a_relay_lane,
    send,
    write,
)
from tests.support.rows.core import a_hash, a_wallet, save, value

GAS_COST = GasCost(a_hash("mined"), 50_000, 2, l1_fee_wei=7)
COST = 50_000 * 2 + 7


def of_ann(max_cost_wei: int = MAX_COST_WEI, **changes: object) -> NewRelay:
    return a_relay(max_cost_wei=max_cost_wei, identity="ann", **changes)  # type: ignore[arg-type]


async def spent(pool: Pool, *identities: str) -> GasSpent:
    async with session(pool) as connection:
        return await gas_budgets.spent(connection, identities or ["ann"])


async def sums(pool: Pool) -> tuple[int, int]:
    """Returns Ann's sum and the total."""
    totals = await spent(pool)
    return totals.by_identity["ann"], totals.total_wei


async def agrees(pool: Pool) -> bool:
    """Checks that each account's sum equals the sum of its relays' rows."""
    differences: int = await value(
        pool,
        """
        SELECT count(*)
          FROM (SELECT gas_day AS day, account, sum(gas_wei) AS wei
                  FROM relays
                 CROSS JOIN LATERAL unnest(ARRAY['', identity]) AS each (account)
                 WHERE gas_day IS NOT NULL AND account IS NOT NULL
                 GROUP BY 1, 2) AS rows
          FULL JOIN (SELECT day, identity AS account, sum(wei) AS wei
                       FROM gas_spent GROUP BY 1, 2) AS sums USING (day, account)
         WHERE coalesce(rows.wei, 0) <> coalesce(sums.wei, 0)
        """,
    )
    return differences == 0


async def move(pool: Pool, lane: Lane, row: int, was: State, now: Transaction) -> None:
    async with transaction(pool) as connection:
        await save(connection, lane, row, was, now)
        await relays.follow(connection, [row])


async def test_on_a_day_without_relays_nothing_is_spent(pool: Pool) -> None:
    assert await sums(pool) == (0, 0)


async def test_a_relay_counts_for_its_identity_and_for_the_total(
    pool: Pool,
) -> None:
    other = a_relay(a_plan(b"\x02", a_wallet(5)), max_cost_wei=2, identity="ann")
    stranger = a_relay(a_plan(b"\x03", a_wallet(6)), max_cost_wei=4, identity="bob")
    await write(pool, of_ann(1), other, stranger)
    totals = await spent(pool, "ann", "bob", "eve")
    assert totals.by_identity == {"ann": 3, "bob": 4, "eve": 0}
    assert totals.total_wei == 7
    assert await agrees(pool)


async def test_numbers_of_256_bits_are_kept_exactly(pool: Pool) -> None:
    await write(pool, of_ann(2**200), of_ann(2**200))
    assert await sums(pool) == (2**201, 2**201)


async def test_a_call_that_would_revert_costs_nothing(pool: Pool) -> None:
    await write(pool, of_ann(key="k", failure="Paused"))
    assert await sums(pool) == (0, 0)


async def test_a_mined_relay_counts_its_cost_and_after_a_reorg_its_maximum_again(
    pool: Pool,
) -> None:
    lane = await a_relay_lane(pool)
    await write(pool, of_ann(), of_ann(7))
    mined, _ = await send(pool, lane)
    assert await sums(pool) == (MAX_COST_WEI + 7, MAX_COST_WEI + 7)

    inclusion = Inclusion(5, a_hash("block"), True, GAS_COST)
    await move(pool, lane, mined.id, State.SIGNED, Transaction(State.MINED, inclusion))
    assert await sums(pool) == (COST + 7, COST + 7)

    await move(pool, lane, mined.id, State.MINED, Transaction(State.PUBLISHED))
    assert await sums(pool) == (MAX_COST_WEI + 7, MAX_COST_WEI + 7)
    assert await agrees(pool)


async def test_following_twice_counts_once(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    await write(pool, of_ann())
    (row,) = await send(pool, lane)
    inclusion = Inclusion(5, a_hash("block"), True, GAS_COST)
    await move(pool, lane, row.id, State.SIGNED, Transaction(State.MINED, inclusion))
    for _ in range(2):
        async with transaction(pool) as connection:
            await relays.follow(connection, [row.id])
    assert await sums(pool) == (COST, COST)


async def test_a_rolled_back_state_change_changes_neither_row_nor_sum(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    await write(pool, of_ann())
    (row,) = await send(pool, lane)
    inclusion = Inclusion(5, a_hash("block"), True, GAS_COST)
    async with pool.acquire() as connection:
        dying = connection.transaction()
        await dying.start()
        await save(connection, lane, row.id, State.SIGNED, Transaction(State.MINED, inclusion))
        await relays.follow(connection, [row.id])
        assert (await gas_budgets.spent(connection, ["ann"])).total_wei == COST
        await dying.rollback()
    assert await sums(pool) == (MAX_COST_WEI, MAX_COST_WEI)
    assert await agrees(pool)


async def test_a_displaced_relay_costs_nothing(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    await write(pool, of_ann())
    (row,) = await send(pool, lane)
    await move(pool, lane, row.id, State.SIGNED, Transaction(State.DISPLACED))
    assert await sums(pool) == (0, 0)


async def test_a_withdrawn_relays_reservation_is_released(pool: Pool) -> None:
    first, second = await write(pool, of_ann(), of_ann(7))
    async with session(pool) as connection:
        assert await relays.withdraw(connection, first)
        assert not await relays.withdraw(connection, first)
    assert await sums(pool) == (7, 7)

    async with session(pool) as connection:
        await connection.execute(
            "UPDATE relays SET created_at = now() - interval '11 minutes' WHERE id = $1", second
        )
        await relays.delete_expired(connection)
    assert await sums(pool) == (0, 0)
    assert await agrees(pool)


async def test_a_refused_relays_reservation_is_released(pool: Pool) -> None:
    first, _ = await write(pool, of_ann(), of_ann(7))
    async with transaction(pool) as connection:
        await relays.refuse(connection, {first: "The calldata is too dear"})
        await relays.refuse(connection, {first: "The calldata is too dear"})
    assert await sums(pool) == (7, 7)
    assert await agrees(pool)


async def test_a_relay_counts_on_the_utc_day_of_its_admission(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    async with pool.acquire() as connection:
        await connection.execute("SET TIME ZONE 'Pacific/Kiritimati'")
        async with connection.transaction():
            (relay,) = await relays.insert(connection, [of_ann()])
        day, today = await connection.fetchrow(
            "SELECT gas_day, (now() AT TIME ZONE 'UTC')::date FROM relays"
        )
        assert day == today
        assert (await gas_budgets.spent(connection, ["ann"])).by_identity == {"ann": MAX_COST_WEI}
        await connection.execute("RESET TIME ZONE")
        before = today - timedelta(days=1)
        await connection.execute("UPDATE relays SET gas_day = $2 WHERE id = $1", relay, before)
        await connection.execute("UPDATE gas_spent SET day = $1", before)
    assert await sums(pool) == (0, 0)
    (row,) = await send(pool, lane)
    inclusion = Inclusion(5, a_hash("block"), True, GAS_COST)
    await move(pool, lane, row.id, State.SIGNED, Transaction(State.MINED, inclusion))
    assert await sums(pool) == (0, 0)
    assert await agrees(pool)


async def test_concurrent_additions_to_the_total_do_not_block_each_other(
    pool: Pool,
) -> None:
    """Each connection locks only its own slot."""
    async with pool.acquire() as first, pool.acquire() as second, pool.acquire() as third:
        slots = {
            await each.fetchval("SELECT pg_backend_pid() % 15"): each
            for each in (first, second, third)
        }
        writer, other, *_ = slots.values()
        async with writer.transaction(), other.transaction():
            today = await writer.fetchval("SELECT (now() AT TIME ZONE 'UTC')::date")
            await gas_budgets.count(writer, [GasChange(today, "ann", 1)])
            await other.execute("SET LOCAL lock_timeout = '2s'")
            await gas_budgets.count(other, [GasChange(today, "bob", 2)])
    assert await sums(pool) == (1, 3)


async def test_writers_near_the_budget_see_all_committed_spending(pool: Pool) -> None:
    budgets = GasBudgets(total_wei=100)
    async with pool.acquire() as writer, pool.acquire() as other:
        first = writer.transaction()
        await first.start()
        await gas_budgets.spent_for(writer, budgets, [], 60)
        async with other.transaction():
            await other.execute("SET LOCAL lock_timeout = '1ms'")
            with pytest.raises(asyncpg.LockNotAvailableError):
                await gas_budgets.spent_for(other, budgets, [], 60)
        today = await writer.fetchval("SELECT (now() AT TIME ZONE 'UTC')::date")
        await gas_budgets.count(writer, [GasChange(today, None, 60)])
        await first.commit()
        async with other.transaction():
            assert (await gas_budgets.spent_for(other, budgets, [], 60)).total_wei == 60


async def test_days_are_deleted_after_a_week(pool: Pool) -> None:
    today = "(now() AT TIME ZONE 'UTC')::date"
    async with session(pool) as connection:
        await connection.execute(
            f"INSERT INTO gas_spent SELECT {today} - days, 'ann', 0, $1::numeric "
            "FROM generate_series(0, 20) AS days",
            Decimal(5),
        )
        await gas_budgets.delete_expired(connection)
    assert await value(
        pool, f"SELECT array_agg({today} - day ORDER BY day DESC) FROM gas_spent"
    ) == [*range(8)]


# --- identities of wallets ----------------------------------------------------------------------


async def identity_of(pool: Pool, wallet: Address) -> str:
    async with session(pool) as connection:
        return await gas_budgets.identity_of(connection, wallet)


async def test_an_unknown_wallet_is_its_own_identity(pool: Pool) -> None:
    assert await identity_of(pool, USER) == hex_of(USER)


async def test_a_wallet_created_for_an_address_belongs_to_its_user(pool: Pool) -> None:
    async with session(pool) as connection:
        await connection.execute(
            "INSERT INTO users (id, email_key, identity_subject, wallet) "
            "VALUES (gen_random_uuid(), 'ann@shop.example', 'did:privy:ann', $1), "
            "(gen_random_uuid(), 'bob@shop.example', 'did:privy:bob', $2)",
            USER,
            OTHER_USER,
        )
    assert await identity_of(pool, USER) == "did:privy:ann"
    assert await identity_of(pool, OTHER_USER) == "did:privy:bob"


async def test_a_custodial_wallet_has_its_owners_subject_as_identity(pool: Pool) -> None:
    """The identity is the subject of the owner's tokens, without the issuer."""
    other, stranger = a_wallet(0x55), a_wallet(0x56)
    async with session(pool) as connection:
        for subject, wallet in (
            ("ltzd:root", USER),
            ("ltzd:other", other),
            ("ltzd:stranger", stranger),
        ):
            await connection.execute(
                "INSERT INTO custodial_users VALUES ($1, $2, 'key', 'sealed')", subject, wallet
            )
            await connection.execute(
                "INSERT INTO users (id, email_key, identity_subject, wallet) "
                "VALUES (gen_random_uuid(), $1, $1, $2)",
                subject,
                wallet,
            )
        assert await gas_budgets.identity_of(connection, other) == "ltzd:other"
        await connection.execute(
            "INSERT INTO custodial_accounts VALUES "
            "('subject', 'https://login.example/ ann', 'ltzd:root', true), "
            "('owned', 'ltzd:root', 'ltzd:root', true), "
            "('owned', 'ltzd:other', 'ltzd:root', true), "
            "('email', 'ann@shop.example', 'ltzd:root', true), "
            "('subject', 'https://login.example/ abe', 'ltzd:stranger', true), "
            "('owned', 'ltzd:stranger', 'ltzd:stranger', true)"
        )
    assert await identity_of(pool, USER) == "ann"
    assert await identity_of(pool, other) == "ann"
    assert await identity_of(pool, stranger) == "abe"

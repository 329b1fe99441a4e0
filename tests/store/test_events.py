"""Claims and totals are counted under locks; an event, its reward and its wake-up are one write."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from ltzd.rules.events import ClaimRecord
from ltzd.store import events, users
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.events import EventRow
from ltzd.store.users import User
from tests.support.core import BRAND, a_hash, a_wallet, value

KEY = (BRAND, "account_creation", "ann@shop.example")
TOTAL = KEY[:2]


def an_event(**changes: object) -> EventRow:
    row = EventRow(
        id=uuid4(),
        brand_id=BRAND,
        event_type="account_creation",
        email="Ann@shop.example",
        user_id=UUID(int=7),
        domain="shop.example",
        source=None,
        user_identifier=None,
        metadata={"channel_id": "c", "n": [1, {"deep": "ü"}]},
        ltz=100,
        wallet=a_wallet(1),
    )
    return replace(row, **changes)  # type: ignore[arg-type]


async def claim_once(connection: Connection, event: EventRow) -> int:
    """What every writer does; answers the claims before this one."""
    claims, now = await events.lock_claims(connection, [KEY])
    totals = await events.lock_totals(connection, [TOTAL])
    before = claims[KEY].claims
    claims[KEY] = ClaimRecord(before + 1, event.id, now)
    await events.write(connection, [event], claims, {TOTAL: totals[TOTAL] + 1})
    return before


async def test_nobody_has_claimed_at_first(pool: Pool) -> None:
    async with session(pool) as connection:
        claim, now = await events.find_claim(connection, KEY)
        assert claim == ClaimRecord(0, None, None)
        assert now.tzinfo is not None
        assert await events.find_total(connection, TOTAL) == 0
        assert await events.lock_totals(connection, []) == {}


async def test_what_is_written_is_read(pool: Pool) -> None:
    event = an_event()
    async with transaction(pool) as connection:
        await claim_once(connection, event)
    async with session(pool) as connection:
        claim, now = await events.find_claim(connection, KEY)
        assert (claim.claims, claim.last_event_id) == (1, event.id)
        assert claim.last_event_at is not None
        assert claim.last_event_at <= now
        assert await events.find_total(connection, TOTAL) == 1
        row = await connection.fetchrow("SELECT email, metadata, ltz FROM events")
        assert tuple(row) == (event.email, event.metadata, 100)
        reward = await connection.fetchrow("SELECT id, kind, wallet, ltz, seq FROM rewards")
        assert tuple(reward) == (event.id, events.EVENT_REWARD, event.wallet, 100, None)


async def test_a_reward_of_nothing_is_no_reward(pool: Pool) -> None:
    async with transaction(pool) as connection:
        await claim_once(connection, an_event(ltz=0))
    assert await value(pool, "SELECT count(*) FROM events") == 1
    assert await value(pool, "SELECT count(*) FROM rewards") == 0


async def test_simultaneous_writers_count_every_claim_once(pool: Pool) -> None:
    async def claim() -> int:
        async with transaction(pool) as connection:
            return await claim_once(connection, an_event())

    before = await asyncio.gather(*(claim() for _ in range(25)))

    assert sorted(before) == list(range(25))
    assert await value(pool, "SELECT claims FROM claim_totals") == 25


async def test_times_of_one_claim_never_go_back(pool: Pool) -> None:
    """The second writer's time is taken after it has waited for the first."""
    async with transaction(pool) as connection:
        await events.lock_claims(connection, [KEY])
        second = asyncio.create_task(_time_under_lock(pool))
        await asyncio.wait([second], timeout=0.1)
        committed_after = await connection.fetchval("SELECT clock_timestamp()")
    assert await second >= committed_after


async def _time_under_lock(pool: Pool) -> object:
    async with transaction(pool) as connection:
        _, now = await events.lock_claims(connection, [KEY])
        return now


async def test_a_total_that_nobody_kept_is_counted_first(pool: Pool) -> None:
    async with session(pool) as connection:
        for number in range(3):
            await connection.execute(
                "INSERT INTO claims (brand_id, event_type, email_key, claims) VALUES ($1,$2,$3,4)",
                *TOTAL,
                f"{number}@shop.example",
            )
        assert await events.find_total(connection, TOTAL) == 12
        assert await events.lock_totals(connection, [TOTAL, TOTAL]) == {TOTAL: 12}


async def test_writers_of_the_same_claims_in_any_order_do_not_deadlock(pool: Pool) -> None:
    keys = [(BRAND, "form_submit", f"{number}@shop.example") for number in range(30)]

    async def lock(backwards: bool) -> None:
        async with transaction(pool) as connection:
            await events.lock_claims(connection, keys[::-1] if backwards else keys)

    await asyncio.gather(*(lock(number % 2 == 0) for number in range(16)))


@pytest.mark.parametrize("text", ["nul \x00 inside", "\x00"])
async def test_a_nul_in_metadata_is_the_databases_refusal_of_that_write(
    pool: Pool, text: str
) -> None:
    """PostgreSQL keeps no NUL: http removes it, and a group commit isolates whoever gets here."""
    with pytest.raises(Exception, match="Unicode"):
        async with transaction(pool) as connection:
            await claim_once(connection, an_event(metadata={"k": text}))
    assert await value(pool, "SELECT count(*) FROM events") == 0


async def test_a_found_event_tells_how_far_its_reward_has_come(pool: Pool) -> None:
    user = User(UUID(int=7), KEY[2], "did", a_wallet(1))
    event = an_event()
    async with transaction(pool) as connection:
        await users.insert(connection, [user])
        await claim_once(connection, event)
        assert await events.find(connection, uuid4()) is None
        found = await events.find(connection, event.id)
        assert found is not None
        assert (found.hash, found.mint_block_number, found.is_final) == (None, None, False)
        assert (found.ltz, found.wallet) == (100, user.wallet)
        await connection.execute(
            "UPDATE rewards SET mint_block_number = 5, mint_block_hash = $1, "
            "mint_transaction_hash = $2",
            a_hash("block"),
            a_hash("mint"),
        )
        found = await events.find(connection, event.id)
        assert found is not None
        assert (found.hash, found.mint_block_number, found.is_final) == (a_hash("mint"), 5, False)
        await connection.execute(
            "INSERT INTO chains VALUES (1, $1, $2, 1, 0, 9, $1, 9, 5)", a_hash("x"), a_wallet(2)
        )
        found = await events.find(connection, event.id)
        assert found is not None
        assert found.is_final

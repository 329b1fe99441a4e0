"""The bounds of top-ups, which the statement that stores a top-up enforces."""

import asyncio

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.errors import LaneLost
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import lanes, top_ups, wallets
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.top_ups import TopUp, TopUpTarget
from ltzd.store.operator.wallets import WalletState
from ltzd.values import Address
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.rows.core import a_wallet, an_attempt, value
from tests.support.waiting import until

TREASURY, OTHER_TREASURY, MINT, RELAY = (a_wallet(number) for number in (1, 2, 3, 4))
OTHER_CHAIN = CHAIN_ID + 1
WEI, DAY = 10, 25
"""A top-up, and the bound of a day: two top-ups fit."""


async def add(pool: Pool, wallet: Address, kind: str, chain_id: int = CHAIN_ID) -> Lane:
    async with session(pool) as connection:
        await wallets.add(connection, chain_id, wallet, kind)
        return await lanes.begin_term(connection, chain_id, wallet, kind, 5)


@pytest_asyncio.fixture
async def treasury(pool: Pool) -> Lane:
    await add(pool, MINT, "mint")
    await add(pool, RELAY, "relay")
    return await add(pool, TREASURY, "treasury")


async def fill(
    pool: Pool, lane: Lane, to: Address = MINT, *, nonce: int = 5, most: int = DAY
) -> int | None:
    """Returns the id of the stored transaction, or None."""
    async with session(pool) as connection:
        attempt = an_attempt(f"{lane.chain_id} {lane.wallet.hex()} {nonce}")
        top_up = TopUp(nonce, to, WEI, 21_000)
        return await top_ups.store_signed(connection, lane, top_up, attempt, most)


async def targets(pool: Pool) -> list[TopUpTarget]:
    async with session(pool) as connection:
        return await top_ups.targets(connection, CHAIN_ID)


async def spent(pool: Pool, wallet: Address = TREASURY) -> int:
    async with session(pool) as connection:
        return await top_ups.spent_today(connection, CHAIN_ID, wallet)


async def end(pool: Pool, row: int | None, state: str) -> None:
    """Moves the transaction as its lane does, in a block if the state has one."""
    block = "NULL, NULL, NULL" if state in {"published", "displaced"} else "7, sha256('x'), true"
    await value(
        pool,
        "UPDATE transactions SET state = $2, "
        f"(block_number, block_hash, succeeded) = ROW ({block}) WHERE id = $1",
        row,
        state,
    )


async def test_only_active_wallets_that_mint_or_relay_are_targets(
    pool: Pool, treasury: Lane
) -> None:
    both = [
        TopUpTarget(MINT, "mint", 5, has_open=False, has_displaced=False),
        TopUpTarget(RELAY, "relay", 5, has_open=False, has_displaced=False),
    ]
    await add(pool, a_wallet(9), "mint", OTHER_CHAIN)
    assert await targets(pool) == both
    async with session(pool) as connection:
        await wallets.set_paused(connection, CHAIN_ID, MINT, "by hand")
        await wallets.set_state(connection, CHAIN_ID, RELAY, WalletState.DRAINING)
    assert await targets(pool) == []
    assert [await fill(pool, treasury, to) for to in (MINT, RELAY, TREASURY, a_wallet(9))] == [
        None
    ] * 4


async def test_a_wallet_that_is_being_retired_is_not_filled(pool: Pool, treasury: Lane) -> None:
    """The treasury has decided on a balance that it read seconds ago."""

    async def waits() -> bool:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        return bool(await value(pool, waiting + "AND datname = current_database()"))

    async with transaction(pool) as connection:
        await wallets.set_state(connection, CHAIN_ID, MINT, WalletState.RETIRED)
        filling = asyncio.create_task(fill(pool, treasury))
        await until(waits)
    assert await filling is None
    assert await fill(pool, treasury, RELAY) is not None


@pytest.mark.parametrize(
    ("state", "is_open"),
    [("signed", True), ("published", True), ("mined", True), ("confirmed", False)],
)
async def test_a_wallet_has_one_open_top_up(
    pool: Pool, treasury: Lane, state: str, is_open: bool
) -> None:
    row = await fill(pool, treasury)
    if state != "signed":
        await end(pool, row, state)
    assert [each.has_open for each in await targets(pool)] == [is_open, False]
    assert (await fill(pool, treasury, nonce=6) is None) is is_open
    assert await value(pool, "SELECT next_nonce FROM lanes WHERE wallet = $1", TREASURY) == (
        6 if is_open else 7
    )


async def test_the_top_ups_of_a_day_stay_within_its_bound_whatever_became_of_them(
    pool: Pool, treasury: Lane
) -> None:
    other = await add(pool, OTHER_TREASURY, "treasury")
    elsewhere = await add(pool, TREASURY, "treasury", OTHER_CHAIN)
    await add(pool, MINT, "mint", OTHER_CHAIN)
    await fill(pool, elsewhere)
    await end(pool, await fill(pool, other), "confirmed")
    assert (await spent(pool), await spent(pool, OTHER_TREASURY)) == (0, WEI)

    first = await fill(pool, treasury)
    await end(pool, first, "displaced")
    await fill(pool, treasury, nonce=6)
    assert await spent(pool) == 2 * WEI
    assert await fill(pool, treasury, RELAY, nonce=7) is None
    assert await fill(pool, treasury, RELAY, nonce=7, most=3 * WEI - 1) is None
    await value(
        pool,
        "UPDATE transactions SET created_at = date_trunc('day', now(), 'UTC') "
        "- interval '1 second' WHERE id = $1",
        first,
    )
    assert await spent(pool) == WEI
    assert await fill(pool, treasury, RELAY, nonce=7, most=2 * WEI) is not None


@pytest.mark.parametrize(("epochs", "nonce"), [(1, 5), (-1, 5), (0, 4), (0, 6)])
async def test_a_treasury_that_lost_its_lane_stores_nothing(
    pool: Pool, treasury: Lane, epochs: int, nonce: int
) -> None:
    lost = replace(treasury, epoch=treasury.epoch + epochs)
    with pytest.raises(LaneLost):
        await fill(pool, lost, nonce=nonce)
    assert await spent(pool) == 0


async def test_a_wallet_in_foreign_hands_is_shown_until_a_person_accounts_for_it(
    pool: Pool, treasury: Lane
) -> None:
    foreign = (
        "INSERT INTO transactions "
        "(chain_id, wallet, nonce, kind, to_address, data, gas_limit, state) "
        "VALUES ($1, $2, 4, 'relay', $3, '', 21000, 'displaced')"
    )
    await value(pool, foreign, CHAIN_ID, MINT, RELAY)
    await value(pool, foreign.replace("displaced", "signed"), CHAIN_ID, RELAY, MINT)
    assert [each.has_open for each in await targets(pool)] == [False, False], "no top-up"
    assert [each.has_displaced for each in await targets(pool)] == [True, False]
    await value(pool, "UPDATE lanes SET resumed_nonce = 4 WHERE wallet = $1", MINT)
    assert [each.has_displaced for each in await targets(pool)] == [True, False]
    await value(pool, "UPDATE lanes SET resumed_nonce = 5 WHERE wallet = $1", MINT)
    assert [each.has_displaced for each in await targets(pool)] == [False, False]

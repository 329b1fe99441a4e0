"""Lanes share the queue of relays: each relay has one lane, and users' relays keep their order."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs
from msgspec.structs import replace

from ltzd.chain.signing import Signer
from ltzd.errors import LaneLost
from ltzd.rules.operator.transactions import Inclusion, State, Transaction
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import lanes, wallets
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.leases import lane_lease
from ltzd.store.operator.wallets import WalletState
from ltzd.store.relayer import claims, relays
from ltzd.store.relayer.claims import ClaimedRelay
from ltzd.values import Address
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.relays.lanes import (
    OTHER_RELAYER,
    OTHER_USER,
    RELAYER,
    USER,
    a_plan,
    a_relay,
    a_relay_lane,
    row_states,
    send,
    store_signed,
    write,
)
from tests.support.rows.core import a_hash, a_wallet, save, value

THIRD_RELAYER = Signer(b"\x04" * 32)
FROZEN = "15 seconds"
"""Without a report for so long, a lane's claims may be taken over."""
LOST = "61 seconds"
"""A lane that was not served for so long holds back nothing."""


async def ask(pool: Pool, *users: Address, wallet: Address | None = None) -> list[int]:
    """Queues a relay of each of the users, in order."""
    return await write(pool, *[a_relay(a_plan(user=user, wallet=wallet)) for user in users])


async def claim(
    pool: Pool, lane: Lane, limit: int = 100, *, only_named: bool = False
) -> list[ClaimedRelay]:
    async with session(pool) as connection:
        return await claims.claim(connection, lane, limit, only_named=only_named)


async def claimed_ids(
    pool: Pool, lane: Lane, limit: int = 100, *, only_named: bool = False
) -> list[int]:
    return [each.id for each in await claim(pool, lane, limit, only_named=only_named)]


async def give_back(pool: Pool, lane: Lane, claimed: Sequence[ClaimedRelay] | None = None) -> int:
    async with session(pool) as connection:
        return await claims.give_back(connection, lane, claimed)


async def store(
    pool: Pool, lane: Lane, claimed: Sequence[ClaimedRelay], nonce: int = 0
) -> list[int]:
    """Stores signed transactions; returns their ids."""
    async with session(pool) as connection:
        return [row.id for row in await store_signed(connection, lane, claimed, nonce)]


async def mine(pool: Pool, lane: Lane, row: int) -> None:
    inclusion = Inclusion(5, a_hash("block"), True)
    async with transaction(pool) as connection:
        await save(connection, lane, row, State.SIGNED, Transaction(State.MINED, inclusion))
        await relays.follow(connection, [row])


async def silent_since(pool: Pool, lane: Lane, ago: str) -> None:
    await value(
        pool,
        "UPDATE lanes SET served_at = now() - $2::text::interval WHERE wallet = $1",
        lane.wallet,
        ago,
    )


async def two_lanes(pool: Pool) -> tuple[Lane, Lane]:
    return await a_relay_lane(pool), await a_relay_lane(pool, OTHER_RELAYER)


# --- who takes what -----------------------------------------------------------------------------


async def test_a_lane_takes_the_oldest_relays_that_it_may_send_and_other_lanes_the_rest(
    pool: Pool,
) -> None:
    lane, other = await two_lanes(pool)
    (his,) = await ask(pool, a_wallet(1), wallet=OTHER_RELAYER.address)
    ids = await ask(pool, a_wallet(2), a_wallet(3), a_wallet(4))
    (own,) = await ask(pool, a_wallet(5), wallet=RELAYER.address)
    assert await claimed_ids(pool, lane, 2) == ids[:2]
    assert await claimed_ids(pool, other) == [his, ids[2]]
    assert await claimed_ids(pool, lane) == [*ids[:2], own], "its claims, and what names it"


async def test_a_claimed_relay_has_everything_that_is_signed(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay(a_plan(b"\x07" * 100)))
    assert await claim(pool, lane) == [
        ClaimedRelay(relay, a_plan().to, b"\x07" * 100, gas_limit=100_000, user=a_plan().user)
    ]


async def test_a_draining_wallet_takes_the_relays_that_name_it_and_no_others(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    (named,) = await ask(pool, USER, wallet=RELAYER.address)
    await ask(pool, OTHER_USER)
    assert await claimed_ids(pool, lane, only_named=True) == [named]


async def test_relays_with_unaffordable_gas_stay_behind_and_do_not_count_in_the_limit(
    pool: Pool,
) -> None:
    """Their users' later relays stay behind them: relays of one user keep their order."""
    lane = await a_relay_lane(pool)
    await write(pool, structs.replace(a_relay(a_plan(b"\x01", USER)), gas_limit=200_000))
    await ask(pool, USER, USER)
    await write(pool, structs.replace(a_relay(a_plan(b"\x01", a_wallet(1))), gas_limit=249_999))
    (small,) = await ask(pool, OTHER_USER)
    others = a_plan(b"\x01", a_wallet(2), wallet=OTHER_RELAYER.address)
    await write(pool, structs.replace(a_relay(others), gas_limit=160_000))
    async with session(pool) as connection:
        (claimed,) = await claims.claim(connection, lane, 1, unaffordable=range(150_000, 250_000))
        assert claimed.id == small
        assert await claims.least_gas_in(connection, lane, range(150_000, 250_000)) == 200_000
        assert await claims.least_gas_in(connection, lane, range(200_000, 250_000)) == 200_000
        assert await claims.least_gas_in(connection, lane, range(150_000, 200_000)) is None
        assert await claims.least_gas_in(connection, lane, range(250_000, 300_000)) is None


async def test_the_least_gas_is_that_of_relays_which_this_wallet_may_send(pool: Pool) -> None:
    lane = await a_relay_lane(pool)

    async def least() -> int | None:
        async with session(pool) as connection:
            return await claims.least_gas_in(connection, lane, range(50_000, 200_000))

    await ask(pool, USER, wallet=OTHER_RELAYER.address)
    assert await least() is None
    await ask(pool, USER, wallet=lane.wallet)
    assert await least() == 100_000
    await send(pool, lane)
    assert await least() is None
    await ask(pool, USER)
    assert await least() == 100_000
    await value(pool, "UPDATE relays SET created_at = now() - interval '10 minutes'")
    assert await least() is None


async def test_a_lane_whose_term_is_over_claims_nothing(pool: Pool) -> None:
    old = await a_relay_lane(pool)
    new = await a_relay_lane(pool)
    ids = await ask(pool, USER)
    assert await claimed_ids(pool, old) == []
    assert await claimed_ids(pool, new) == ids


async def test_a_relay_that_is_given_back_is_taken_by_another_lane(pool: Pool) -> None:
    lane, other = await two_lanes(pool)
    ids = await ask(pool, a_wallet(1), a_wallet(2), a_wallet(3))
    first, *_ = await claim(pool, lane)
    assert await claimed_ids(pool, other) == []
    assert await give_back(pool, lane, [first]) == 1
    assert await claimed_ids(pool, other) == ids[:1]
    assert await give_back(pool, lane) == 2, "the other lane's claim is not its own"
    assert await claimed_ids(pool, other) == ids


async def test_a_relay_of_ten_minutes_is_not_claimed(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    old, young = await ask(pool, USER, USER)
    await value(
        pool, "UPDATE relays SET created_at = now() - interval '10 minutes' WHERE id = $1", old
    )
    assert await claimed_ids(pool, lane) == [young], "it waits for no lapsed relay"


# --- order --------------------------------------------------------------------------------------


async def test_a_users_relays_go_to_the_lane_that_holds_the_earlier_ones(pool: Pool) -> None:
    lane, other = await two_lanes(pool)
    ids = await ask(pool, USER, USER, USER)
    assert await claimed_ids(pool, lane, 1) == ids[:1]
    assert await claimed_ids(pool, other) == []
    (row,) = await store(pool, lane, await claim(pool, lane, 1))
    assert await claimed_ids(pool, other) == []
    assert await claimed_ids(pool, lane, 1) == ids[1:2], "behind the relay that it has sent"
    await give_back(pool, lane)

    await mine(pool, lane, row)
    assert await claimed_ids(pool, other) == ids[1:]


async def test_a_relay_that_names_a_wallet_waits_for_the_earlier_ones_at_other_lanes(
    pool: Pool,
) -> None:
    lane, other = await two_lanes(pool)
    (first,) = await ask(pool, USER)
    (named,) = await ask(pool, USER, wallet=OTHER_RELAYER.address)
    (last,) = await ask(pool, USER)
    assert await claimed_ids(pool, lane) == [first]
    (row,) = await store(pool, lane, await claim(pool, lane))
    assert await claimed_ids(pool, other) == []
    assert await claimed_ids(pool, lane) == [], "the named one comes first"

    await mine(pool, lane, row)
    assert await claimed_ids(pool, lane) == []
    assert await claimed_ids(pool, other) == [named, last]


async def test_an_earlier_relay_that_is_being_claimed_holds_back_the_later_ones(
    pool: Pool,
) -> None:
    lane, other = await two_lanes(pool)
    mine_, his = await ask(pool, USER, OTHER_USER)
    await ask(pool, USER)
    async with transaction(pool) as connection:
        (held,) = await claims.claim(connection, lane, 1)
        assert held.id == mine_
        assert await claimed_ids(pool, other) == [his], "a claim waits for no other claim"


async def test_a_withdrawal_under_way_holds_back_the_later_relays(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    going, later, of_other = await ask(pool, USER, USER, OTHER_USER)
    async with transaction(pool) as connection:
        assert await relays.withdraw(connection, going)
        assert await claimed_ids(pool, lane) == [of_other]
    assert await claimed_ids(pool, lane) == [later, of_other]


async def test_redemptions_of_brands_hold_back_no_relay_of_the_holder(pool: Pool) -> None:
    lane, other = await two_lanes(pool)
    redemption, own = await ask(pool, USER, USER)
    await value(
        pool,
        "UPDATE relays SET brand_id = $2, window_start = NULL, wallet = $3 WHERE id = $1",
        redemption,
        a_wallet(0xB),
        OTHER_RELAYER.address,
    )
    assert await claimed_ids(pool, lane) == [own]
    assert await claimed_ids(pool, other) == [redemption]


async def test_a_redemption_that_the_wallet_cannot_pay_for_holds_back_no_relay_of_the_holder(
    pool: Pool,
) -> None:
    lane = await a_relay_lane(pool)
    redemption, own = await ask(pool, USER, USER)
    await value(
        pool,
        "UPDATE relays SET brand_id = $2, window_start = NULL, gas_limit = 200000 WHERE id = $1",
        redemption,
        a_wallet(0xB),
    )
    async with session(pool) as connection:
        claimed = await claims.claim(connection, lane, 9, unaffordable=range(150_000, 250_000))
    assert [relay.id for relay in claimed] == [own]


# --- lanes that do not work ---------------------------------------------------------------------


async def test_a_holders_relay_at_another_lane_holds_back_no_redemption_of_a_brand(
    pool: Pool,
) -> None:
    lane, other = await two_lanes(pool)
    (own,) = await ask(pool, USER)
    assert await claimed_ids(pool, other) == [own]
    (redemption,) = await ask(pool, USER)
    await value(
        pool,
        "UPDATE relays SET brand_id = $2, window_start = NULL WHERE id = $1",
        redemption,
        a_wallet(9),
    )
    assert await claimed_ids(pool, lane) == [redemption]


async def test_claims_of_a_lane_that_is_not_alive_are_taken_over_and_it_can_store_nothing(
    pool: Pool,
) -> None:
    lane, other = await two_lanes(pool)
    ids = await ask(pool, USER, USER, OTHER_USER)
    held = await claim(pool, lane)
    assert await claimed_ids(pool, other) == []
    await silent_since(pool, lane, FROZEN)
    assert await claimed_ids(pool, other, 1) == ids[:1]
    assert await store(pool, lane, held) == [], "the frozen lane wakes up"
    assert await claimed_ids(pool, other) == ids
    assert await row_states(pool) == ["queued"] * 3
    assert await value(pool, "SELECT sum(next_nonce)::int FROM lanes") == 0


async def test_claims_are_free_as_soon_as_their_lanes_lease_has_expired(pool: Pool) -> None:
    lane, other = await two_lanes(pool)
    ids = await ask(pool, USER, USER)
    await claim(pool, lane)
    assert await claimed_ids(pool, other) == []
    await value(
        pool,
        "UPDATE leases SET expires_at = now() WHERE name = $1",
        lane_lease(CHAIN_ID, lane.wallet),
    )
    assert await claimed_ids(pool, other) == ids


async def test_a_lane_that_wakes_up_stores_what_no_other_lane_has_taken_meanwhile(
    pool: Pool,
) -> None:
    lane, other = await two_lanes(pool)
    await ask(pool, USER, OTHER_USER)
    held = await claim(pool, lane)
    await silent_since(pool, lane, FROZEN)
    assert len(await store(pool, lane, held)) == 2
    assert await claimed_ids(pool, other) == []


async def test_relays_sent_by_a_frozen_lane_hold_back_the_later_ones_until_it_is_lost(
    pool: Pool,
) -> None:
    lane, other = await two_lanes(pool)
    ids = await ask(pool, USER, USER)
    await store(pool, lane, await claim(pool, lane, 1))
    await silent_since(pool, lane, FROZEN)
    assert await claimed_ids(pool, other) == []
    await silent_since(pool, lane, LOST)
    assert await claimed_ids(pool, other) == ids[1:]


async def test_relays_that_name_a_lost_wallet_hold_back_nothing(pool: Pool) -> None:
    lane, other = await two_lanes(pool)
    await ask(pool, USER, wallet=RELAYER.address)
    (later,) = await ask(pool, USER)
    assert await claimed_ids(pool, other) == []
    await silent_since(pool, lane, LOST)
    assert await claimed_ids(pool, other) == [later]


async def change_wallet(pool: Pool, lane: Lane, state: WalletState) -> None:
    """Sets the state of the lane's wallet, beside an active one that has no lane."""
    async with session(pool) as connection:
        for wallet in (lane.wallet, THIRD_RELAYER.address):
            await wallets.add(connection, CHAIN_ID, wallet, "relay")
        await wallets.set_state(connection, CHAIN_ID, lane.wallet, state)


STATES = [(WalletState.DRAINING, True), (WalletState.RETIRED, False)]


@pytest.mark.parametrize(("state", "holds"), STATES)
async def test_relays_sent_by_a_retired_wallet_hold_back_nothing(
    pool: Pool, state: WalletState, holds: bool
) -> None:
    lane, other = await two_lanes(pool)
    ids = await ask(pool, USER, USER)
    await store(pool, lane, await claim(pool, lane, 1))
    await change_wallet(pool, lane, state)
    assert await claimed_ids(pool, other) == ([] if holds else ids[1:])


@pytest.mark.parametrize(("state", "holds"), STATES)
async def test_relays_that_name_a_retired_wallet_hold_back_nothing(
    pool: Pool, state: WalletState, holds: bool
) -> None:
    lane, other = await two_lanes(pool)
    await ask(pool, USER, wallet=RELAYER.address)
    (later,) = await ask(pool, USER)
    await change_wallet(pool, lane, state)
    assert await claimed_ids(pool, other) == ([] if holds else [later])


@pytest.mark.parametrize(
    ("reason", "seconds", "holds"),
    [("by_hand", 4, True), ("by_hand", 6, False), ("funds", 6, False), ("draining", 600, True)],
)
async def test_relays_that_name_a_paused_wallet_hold_back_the_later_ones_for_a_moment(
    pool: Pool, reason: str, seconds: int, holds: bool
) -> None:
    lane, other = await two_lanes(pool)
    await ask(pool, USER, wallet=RELAYER.address)
    (later,) = await ask(pool, USER)
    async with session(pool) as connection:
        await lanes.report_working(connection, lane, reason)
    await value(
        pool,
        "UPDATE lanes SET paused_since = now() - make_interval(secs => $2) WHERE wallet = $1",
        lane.wallet,
        float(seconds),
    )
    assert await claimed_ids(pool, other) == ([] if holds else [later])


# --- storing ------------------------------------------------------------------------------------


async def test_signed_relays_have_transactions_in_the_order_of_nonces(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    ids = await write(pool, *[a_relay(a_plan(bytes([number]))) for number in range(5)])
    rows = [*await send(pool, lane, 0, 3), *await send(pool, lane, 3)]
    async with session(pool) as connection:
        stored = await connection.fetch(
            "SELECT r.id, t.id AS transaction, t.nonce, t.kind, t.data = r.data AS is_its, t.state,"
            " a.hash FROM relays r JOIN transactions t ON t.id = r.transaction_id "
            "JOIN attempts a ON a.transaction_id = t.id ORDER BY t.nonce"
        )
    assert [row["id"] for row in stored] == ids
    assert [row["transaction"] for row in stored] == [row.id for row in rows]
    assert [row["hash"] for row in stored] == [a_hash(f"{relay}") for relay in ids]
    assert {(row["kind"], row["state"], row["is_its"]) for row in stored} == {
        ("relay", "signed", True)
    }
    assert await value(pool, "SELECT next_nonce FROM lanes") == 5
    assert await row_states(pool) == ["sent"] * 5


@pytest.mark.parametrize("wrong", ["nonce ahead", "nonce behind", "epoch", "wallet"])
async def test_a_lane_of_an_ended_term_stores_nothing(pool: Pool, wrong: str) -> None:
    lane = await a_relay_lane(pool)
    await ask(pool, USER)
    await send(pool, lane)
    await ask(pool, USER, OTHER_USER)
    claimed = await claim(pool, lane)
    if wrong == "epoch":
        await a_relay_lane(pool)
    used = replace(lane, wallet=OTHER_RELAYER.address) if wrong == "wallet" else lane
    nonce = {"nonce ahead": 2, "nonce behind": 0}.get(wrong, 1)
    with pytest.raises(LaneLost):
        await store(pool, used, claimed, nonce)
    assert await row_states(pool) == ["sent", "queued", "queued"]
    assert await value(pool, "SELECT count(*) FROM transactions") == 1
    assert await value(pool, "SELECT next_nonce FROM lanes") == 1


@pytest.mark.parametrize("gone", [(0,), (1,), (2,), (3,), (1, 3)])
async def test_the_first_relay_withdrawn_while_it_was_signed_ends_the_list_that_is_stored(
    pool: Pool, gone: tuple[int, ...]
) -> None:
    lane, first = await a_relay_lane(pool), gone[0]
    ids = await ask(pool, *[a_wallet(number) for number in range(4)])
    claimed = await claim(pool, lane)
    async with session(pool) as connection:
        for number in gone:
            assert await relays.withdraw(connection, ids[number])
    left = [ids[number] for number in range(first, 4) if number not in gone]
    assert len(await store(pool, lane, claimed)) == first
    assert await row_states(pool) == ["sent"] * first + ["queued"] * len(left)
    assert await value(pool, "SELECT next_nonce FROM lanes") == first
    assert await claimed_ids(pool, lane) == left


async def test_many_lanes_that_claim_at_once_share_the_relays_and_keep_each_users_order(
    pool: Pool,
) -> None:
    signers = (RELAYER, OTHER_RELAYER, THIRD_RELAYER)
    started = [await a_relay_lane(pool, signer) for signer in signers]
    users = [a_wallet(number) for number in range(5)]
    ids = await ask(pool, *[users[number % 5] for number in range(120)])

    async def work(lane: Lane) -> list[int]:
        """Claims and stores until nothing is queued; returns what it has stored, in order."""
        nonce, stored = 0, list[int]()
        while "queued" in await row_states(pool):
            claimed = await claim(pool, lane, 7)
            for row in await store(pool, lane, claimed, nonce):
                await mine(pool, lane, row)
            stored += [each.id for each in claimed]
            nonce += len(claimed)
        return stored

    async with asyncio.timeout(30):
        stored = await asyncio.gather(*map(work, started))
    assert sorted(relay for each in stored for relay in each) == ids
    order = await value(
        pool,
        "SELECT array_agg(r.id ORDER BY t.created_at, t.id) FROM relays r "
        "JOIN transactions t ON t.id = r.transaction_id",
    )
    for user in range(5):
        of_user = [relay for relay in order if (relay - ids[0]) % 5 == user]
        assert of_user == sorted(of_user)

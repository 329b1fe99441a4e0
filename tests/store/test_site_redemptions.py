"""What the rows say of redemptions at sites: which are the same, and what may come."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from ltzd.rules.redeeming import Offer
from ltzd.rules.site_spending import Payment
from ltzd.rules.transactions import Place, Transaction
from ltzd.rules.transactions import State as Sending
from ltzd.store import relays, site_redemptions, site_spending
from ltzd.store.database import Pool, session, transaction
from ltzd.store.site_members import Member
from ltzd.store.site_redemptions import NewRedemption, Redemption, State, Traces
from ltzd.values import LTZ
from tests.support.core import BRAND, a_hash, a_wallet, save, value
from tests.support.relay_world import a_plan, a_relay, a_relay_lane, row_states, send, write

WALLET, OTHER_WALLET = a_wallet(0xA1), a_wallet(0xA2)
OTHER_BRAND = a_wallet(0xB2)
PERK = UUID("6f1c2a4e-9d1b-4b7e-8f43-2f8f0e1c5a77")
ANN = Member(BRAND, "site.example", 7, "ann", UUID(int=7), WALLET, None)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def a_redemption(**changes: Any) -> NewRedemption:
    said: dict[str, Any] = {
        "id": uuid4(),
        "brand": BRAND,
        "wallet": WALLET,
        "perk_id": PERK,
        "name": "Free coffee",
        "category": "drinks",
        "collection_id": 7,
        "item_id": None,
        "price": 3 * LTZ,
        "confirmation_code": uuid4().hex,
    }
    return NewRedemption(**(said | changes))


async def begun(pool: Pool, **changes: Any) -> Redemption:
    async with session(pool) as connection:
        written = await site_redemptions.insert(connection, a_redemption(**changes))
    assert written is not None
    return written


async def finished(pool: Pool, one: NewRedemption) -> bool:
    async with session(pool) as connection:
        return await site_redemptions.finish(connection, one.id)


async def failed(pool: Pool, one: NewRedemption, failure: str = "Sold out.") -> bool:
    async with transaction(pool) as connection:
        return await site_redemptions.fail(connection, one, failure)


async def found(pool: Pool, one: NewRedemption) -> Redemption:
    async with session(pool) as connection:
        return await site_redemptions.by_id(connection, one.id)


async def joinable(pool: Pool, perk: UUID = PERK, **member: Any) -> UUID | None:
    async with session(pool) as connection:
        one = await site_redemptions.joinable(connection, replace(ANN, **member), perk)
    return None if one is None else one.id


async def traces(pool: Pool, one: NewRedemption) -> Traces:
    async with session(pool) as connection:
        return await site_redemptions.traces(connection, one)


async def left_behind(pool: Pool) -> list[UUID]:
    async with session(pool) as connection:
        return [one.id for one in await site_redemptions.left_behind(connection, BRAND, WALLET)]


async def age(pool: Pool, one: NewRedemption, by: timedelta) -> None:
    await value(
        pool,
        "UPDATE site_redemptions SET created_at = created_at - $2::interval, "
        "answered_at = answered_at - $2::interval WHERE id = $1",
        one.id,
        by,
    )


async def relayed(pool: Pool, one: NewRedemption) -> int:
    """Its relay, as it is let in."""
    plan = a_plan(one.id.bytes, one.wallet, takes_turns=True)
    new = replace(a_relay(plan, key=one.idempotency_key), fingerprint=one.fingerprint)
    (relay,) = await write(pool, new)
    return relay


async def on_chain(pool: Pool, one: NewRedemption) -> None:
    """Its fact, as the indexer writes it."""
    place = (a_hash(str(one.id)), 0, 1, a_hash("transaction"))
    if one.item_id is None:
        sql = "INSERT INTO perk_claims VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9)"
        said = (one.wallet, one.collection_id, Decimal(1), Decimal(one.price), one.reference)
    else:
        sql = "INSERT INTO purchases VALUES ($1, $2, $3, $4, $5, $6, $7, 1, $8)"
        said = (one.wallet, Decimal(one.item_id), one.reference, Decimal(one.price))  # type: ignore[assignment]
    await value(pool, sql, *place, *said)


# --- beginning, ending ------------------------------------------------------------------------


async def test_a_redemption_is_found_as_it_was_begun(pool: Pool) -> None:
    item = {"collection_id": None, "item_id": 2**200, "price": 10**30}
    for changes in ({}, item):
        new = a_redemption(**changes)
        async with session(pool) as connection:
            written = await site_redemptions.insert(connection, new)
        assert written == await found(pool, new)
        assert {name: getattr(written, name) for name in NewRedemption.__slots__} == {
            name: getattr(new, name) for name in NewRedemption.__slots__
        }
        assert (written.state, written.failure) == (State.OPEN, None)


async def test_no_two_redemptions_have_one_code(pool: Pool) -> None:
    one = await begun(pool)
    async with session(pool) as connection:
        again = a_redemption(confirmation_code=one.confirmation_code)
        assert await site_redemptions.insert(connection, again) is None


async def test_a_redemption_ends_once(pool: Pool) -> None:
    one = await begun(pool)
    assert await finished(pool, one)
    assert not await finished(pool, one)
    assert await failed(pool, one)
    assert (await found(pool, one)).state is State.DONE
    other = await begun(pool)
    assert await failed(pool, other, "Sold out.")
    assert not await finished(pool, other)
    assert (await found(pool, other)).failure == "Sold out."


# --- the same again ---------------------------------------------------------------------------


async def test_an_open_redemption_is_joined_however_old_it_is(pool: Pool) -> None:
    one = await begun(pool)
    await age(pool, one, timedelta(days=30))
    assert await joinable(pool) == one.id


async def test_a_done_one_is_joined_for_a_minute_after_its_answer(pool: Pool) -> None:
    one = await begun(pool)
    await finished(pool, one)
    await age(pool, one, MINUTE - 5 * SECOND)
    assert await joinable(pool) == one.id
    await age(pool, one, 6 * SECOND)
    assert await joinable(pool) is None


async def test_a_failed_one_is_not_joined_nor_anothers(pool: Pool) -> None:
    await failed(pool, await begun(pool))
    assert await joinable(pool) is None
    await begun(pool)
    assert await joinable(pool, brand_id=OTHER_BRAND) is None
    assert await joinable(pool, wallet=OTHER_WALLET) is None
    assert await joinable(pool, perk=uuid4()) is None


async def test_only_the_member_who_began_a_redemption_joins_it(pool: Pool) -> None:
    one = await begun(pool)
    assert await joinable(pool, site_user_id=8) == one.id, "nobody is on record as its member"
    async with session(pool) as connection:
        await site_spending.charge(connection, one.id, ANN, Payment(given=one.price), None)
    assert await joinable(pool) == one.id
    assert await joinable(pool, site_user_id=8) is None
    assert await joinable(pool, host="other.example") is None


# --- what came of it --------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"collection_id": None, "item_id": 2**200}])
async def test_a_fact_on_chain_is_recognised_by_wallet_and_reference(
    pool: Pool, changes: dict[str, Any]
) -> None:
    one, other = await begun(pool, **changes), await begun(pool, **changes)
    await on_chain(pool, replace(one, wallet=OTHER_WALLET))
    assert await traces(pool, one) == Traces(is_on_chain=False, relay=None)
    await value(pool, "DELETE FROM perk_claims")
    await value(pool, "DELETE FROM purchases")
    await on_chain(pool, one)
    assert (await traces(pool, one)).is_on_chain
    assert not (await traces(pool, other)).is_on_chain


async def test_a_relay_is_found_by_its_key_and_after_a_day_without(pool: Pool) -> None:
    one, other = await begun(pool), await begun(pool)
    relay = await relayed(pool, one)
    assert await traces(pool, one) == Traces(is_on_chain=False, relay=relay)
    await value(pool, "UPDATE relays SET idempotency_key = NULL")
    assert (await traces(pool, one)).relay == relay
    assert (await traces(pool, other)).relay is None


Life = tuple[tuple[Sending, bool | None], ...]
LIVES: dict[str, tuple[Life, bool]] = {
    "signed": (((Sending.SIGNED, None),), True),
    "published": (((Sending.SIGNED, None), (Sending.PUBLISHED, None)), True),
    "mined": (((Sending.SIGNED, None), (Sending.MINED, True)), True),
    "failed": (((Sending.SIGNED, None), (Sending.MINED, False)), False),
    "displaced": (((Sending.SIGNED, None), (Sending.DISPLACED, None)), False),
}


@pytest.mark.parametrize("life", LIVES)
async def test_what_may_yet_come_is_not_failed(pool: Pool, life: str) -> None:
    states, may_come = LIVES[life]
    one = await begun(pool)
    await relayed(pool, one)
    assert not await failed(pool, one), "it is queued"
    lane = await a_relay_lane(pool)
    (row,) = await send(pool, lane)
    async with transaction(pool) as connection:
        for (was, _), (now, succeeded) in pairwise(states):
            place = None if succeeded is None else Place(2, a_hash("block"), succeeded)
            await save(connection, lane, row.id, was, Transaction(now, place))
            await relays.follow(connection, [row.id])
    for key in ("with its key", "without"):
        if key == "without":
            await value(pool, "UPDATE relays SET idempotency_key = NULL")
        assert await failed(pool, one) is not may_come
        wanted = State.OPEN if may_come else State.FAILED
        assert (await found(pool, one)).state is wanted


async def test_the_key_of_a_failed_one_is_used_up_so_that_nobody_sends_it_later(
    pool: Pool,
) -> None:
    one = await begun(pool)
    await failed(pool, one)
    assert await row_states(pool) == ["failed"]
    async with session(pool) as connection:
        asked = (one.wallet, one.idempotency_key, None)
        (standing,) = await relays.standings(connection, [asked])
    assert standing.earlier is not None
    assert standing.earlier.fingerprint == one.fingerprint
    assert (standing.used, standing.last_turn, standing.is_turn_taken) == (0, None, False)
    assert await failed(pool, one), "once more does nothing"


async def test_only_open_ones_of_ten_minutes_without_a_fact_are_left_behind(pool: Pool) -> None:
    old: Callable[..., Any] = lambda **changes: begun(pool, perk_id=uuid4(), **changes)  # noqa: E731
    lost, young, done, paid = await old(), await old(), await old(), await old()
    others = await old(wallet=OTHER_WALLET), await old(brand=OTHER_BRAND)
    await finished(pool, done)
    await on_chain(pool, paid)
    for one in (lost, done, paid, *others):
        await age(pool, one, 10 * MINUTE + SECOND)
    await age(pool, young, 9 * MINUTE)
    assert await left_behind(pool) == [lost.id]


# --- what is on offer -------------------------------------------------------------------------


async def test_offers_are_what_is_indexed_of_those_asked_for(pool: Pool) -> None:
    collection = "INSERT INTO collections VALUES ($1, $2, $2, $3, $4, $5, $6, 3, $7, '', $8)"
    await value(pool, collection, 1, BRAND, Decimal(0), 0, 0, True, False, 9)
    await value(pool, collection, 2, BRAND, Decimal(10**30), 9, 2, False, True, 4)
    await value(pool, collection, 3, BRAND, Decimal(0), 0, 0, True, False, 9)
    item = "INSERT INTO items VALUES ($1, $2, $2, $3, $4, $5, 1, true, false, '')"
    await value(pool, item, Decimal(2**200), OTHER_BRAND, Decimal(5), 10, 10)
    async with session(pool) as connection:
        offered = await site_redemptions.offered(connection, [1, 2, 4], [2**200, 7])
    assert offered.of(1, None) == Offer(BRAND, 0, is_active=True, left=None)
    assert offered.of(2, None) == Offer(
        BRAND, 10**30, is_active=False, left=5, max_per_user=2, needs_signature=True
    )
    assert offered.of(None, 2**200) == Offer(OTHER_BRAND, 5, is_active=True, left=0)
    assert [offered.of(3, None), offered.of(4, None), offered.of(None, 7)] == [None] * 3

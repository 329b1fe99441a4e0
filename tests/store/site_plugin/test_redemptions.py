"""Redemptions at sites: repeated requests, payments, and reversals."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio
from msgspec import structs

from ltzd.rules.operator.transactions import Inclusion, Transaction
from ltzd.rules.operator.transactions import State as Sending
from ltzd.rules.site_plugin.redemptions import Offer
from ltzd.rules.site_plugin.spending import PotAmounts
from ltzd.store.books.site_reconciliation import SITE_CHECKS
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import index_correction, perk_facts, sale_facts
from ltzd.store.indexer.fact_rows import TableCorrection
from ltzd.store.indexer.index_correction import IndexCorrection
from ltzd.store.indexer.rebuild import reconciling
from ltzd.store.relayer import relays
from ltzd.store.site_plugin import redemption_payments
from ltzd.store.site_plugin import redemptions as site_redemptions
from ltzd.store.site_plugin import spending as site_spending
from ltzd.store.site_plugin.members import Member
from ltzd.store.site_plugin.redemptions import (
    NewSiteRedemption,
    RedemptionProgress,
    RedemptionState,
    SiteRedemption,
)
from ltzd.store.webhooks import bodies as webhook_bodies
from ltzd.store.webhooks.queue import DueWebhook
from ltzd.values import LTZ, Address, hex_of
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode
from tests.support.relays.lanes import PERKS, a_plan, a_relay, a_relay_lane, row_states, send, write
from tests.support.rows import reorgs
from tests.support.rows.core import BRAND, a_hash, a_wallet, follow, save, value
from tests.support.sites.members import insert_member
from tests.support.surfaces.event_action import SEALER, a_brand
from tests.support.waiting import until

WALLET, OTHER_WALLET = a_wallet(0xA1), a_wallet(0xA2)
OTHER_BRAND = a_wallet(0xB2)
PERK = UUID("6f1c2a4e-9d1b-4b7e-8f43-2f8f0e1c5a77")
ANN = Member(BRAND, "site.example", 7, "ann", UUID(int=7), WALLET, None)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def a_redemption(**changes: Any) -> NewSiteRedemption:
    values: dict[str, Any] = {
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
    return NewSiteRedemption(**(values | changes))


async def begun(pool: Pool, **changes: Any) -> SiteRedemption:
    async with session(pool) as connection:
        written = await site_redemptions.insert(connection, a_redemption(**changes))
    assert written is not None
    return written


async def finished(pool: Pool, redemption: NewSiteRedemption) -> bool:
    """Completes the redemption, after paying it if necessary."""
    await on_chain(pool, redemption)
    async with transaction(pool) as connection:
        return await redemption_payments.finish(connection, redemption.id)


async def failed(pool: Pool, redemption: NewSiteRedemption, failure: str = "Sold out.") -> bool:
    async with transaction(pool) as connection:
        return await site_redemptions.fail(connection, redemption, failure)


async def stored(pool: Pool, redemption: NewSiteRedemption) -> SiteRedemption:
    async with session(pool) as connection:
        return await site_redemptions.by_id(connection, redemption.id)


async def joinable(pool: Pool, perk: UUID = PERK, **member: Any) -> UUID | None:
    async with session(pool) as connection:
        redemption = await site_redemptions.find_joinable(
            connection, structs.replace(ANN, **member), perk
        )
    return None if redemption is None else redemption.id


async def spent_in_all(pool: Pool) -> int:
    """Returns the amount that the brand's site sessions have spent from Ann's wallet."""
    async with session(pool) as connection:
        account = await site_spending.read_account(connection, ANN)
    assert account is not None
    return account.ledger.spent_in_all


async def traces(pool: Pool, redemption: NewSiteRedemption) -> RedemptionProgress:
    async with session(pool) as connection:
        return await site_redemptions.read_progress(connection, redemption)


async def left_behind(pool: Pool) -> list[UUID]:
    async with session(pool) as connection:
        return [
            redemption.id
            for redemption in await site_redemptions.list_abandoned(connection, BRAND, WALLET)
        ]


async def age(pool: Pool, redemption: NewSiteRedemption, by: timedelta) -> None:
    await value(
        pool,
        "UPDATE site_redemptions SET created_at = created_at - $2::interval, "
        "completed_at = completed_at - $2::interval WHERE id = $1",
        redemption.id,
        by,
    )


async def relayed(pool: Pool, redemption: NewSiteRedemption) -> int:
    """Inserts its relay as the action admits it."""
    plan = a_plan(redemption.id.bytes, redemption.wallet, serialized_per_user=True)
    new = structs.replace(
        a_relay(plan, key=redemption.idempotency_key), fingerprint=redemption.fingerprint
    )
    (id_,) = await write(pool, new)
    return id_


def log_index_of(redemption: NewSiteRedemption) -> int:
    """No two logs of a block have the same index."""
    return redemption.id.int % 2**30


async def on_chain(pool: Pool, redemption: NewSiteRedemption, **changes: Any) -> None:
    """Inserts the fact that pays it as the indexer does, with these changes."""
    fact: dict[str, Any] = {
        "block_hash": a_hash(str(redemption.id)),
        "log_index": log_index_of(redemption),
        "block_number": 1,
        "transaction_hash": a_hash(f"transaction of {redemption.id}"),
        "reference": redemption.reference,
    }
    if redemption.item_id is None:
        table, more = (
            "perk_claims",
            {
                "user_address": redemption.wallet,
                "collection_id": redemption.collection_id,
                "token_id": Decimal(1),
                "price": Decimal(redemption.price),
                "claims": 1,
            },
        )
    else:
        table, more = (
            "purchases",
            {
                "buyer": redemption.wallet,
                "item_id": Decimal(redemption.item_id),
                "quantity": 1,
                "paid": Decimal(redemption.price),
            },
        )
    fact |= more
    assert changes.keys() <= fact.keys()
    await insert(pool, table, fact | changes)


async def insert(pool: Pool, table: str, fact: dict[str, Any]) -> None:
    inclusions = ", ".join(f"${inclusion}" for inclusion in range(1, len(fact) + 1))
    sql = f"INSERT INTO {table} ({', '.join(fact)}) VALUES ({inclusions}) ON CONFLICT DO NOTHING"
    await value(pool, sql, *fact.values())


# --- begin and end ----------------------------------------------------------------------------


async def test_an_open_redemption_is_found_as_it_was_written(pool: Pool) -> None:
    item = {"collection_id": None, "item_id": 2**200, "price": 10**30}
    for changes in ({}, item):
        new = a_redemption(**changes)
        async with session(pool) as connection:
            written = await site_redemptions.insert(connection, new)
        assert written == await stored(pool, new)
        assert {name: getattr(written, name) for name in NewSiteRedemption.__struct_fields__} == {
            name: getattr(new, name) for name in NewSiteRedemption.__struct_fields__
        }
        assert (written.state, written.failure) == (RedemptionState.OPEN, None)


async def test_confirmation_codes_are_unique(pool: Pool) -> None:
    redemption = await begun(pool)
    async with session(pool) as connection:
        again = a_redemption(confirmation_code=redemption.confirmation_code)
        assert await site_redemptions.insert(connection, again) is None


async def test_a_redemption_ends_once(pool: Pool) -> None:
    redemption = await begun(pool)
    assert await finished(pool, redemption)
    assert not await finished(pool, redemption)
    assert not await failed(pool, redemption), "it is paid"
    assert (await stored(pool, redemption)).state is RedemptionState.DONE
    other = await begun(pool)
    assert await failed(pool, other, "Sold out.")
    assert not await finished(pool, other)
    assert (await stored(pool, other)).failure == "Sold out."


# --- repeated requests ------------------------------------------------------------------------


async def test_an_open_redemption_is_joined_at_any_age(pool: Pool) -> None:
    redemption = await begun(pool)
    await age(pool, redemption, timedelta(days=30))
    assert await joinable(pool) == redemption.id


async def test_a_done_redemption_is_joined_for_a_minute_after_its_answer(pool: Pool) -> None:
    redemption = await begun(pool)
    await finished(pool, redemption)
    await age(pool, redemption, MINUTE - 5 * SECOND)
    assert await joinable(pool) == redemption.id
    await age(pool, redemption, 6 * SECOND)
    assert await joinable(pool) is None


async def test_a_failed_redemption_or_one_of_another_wallet_is_not_joined(pool: Pool) -> None:
    await failed(pool, await begun(pool))
    assert await joinable(pool) is None
    await begun(pool)
    assert await joinable(pool, brand_id=OTHER_BRAND) is None
    assert await joinable(pool, wallet=OTHER_WALLET) is None
    assert await joinable(pool, perk=uuid4()) is None


async def charged_to_ann(pool: Pool, redemption: NewSiteRedemption) -> None:
    async with session(pool) as connection:
        await site_spending.write_charge(
            connection, redemption.id, ANN, PotAmounts(given=redemption.price), None
        )


async def test_only_the_member_who_began_a_redemption_joins_it(pool: Pool) -> None:
    redemption = await begun(pool)
    assert await joinable(pool, site_user_id=8) == redemption.id, (
        "the redemption has no recorded member"
    )
    await charged_to_ann(pool, redemption)
    assert await joinable(pool) == redemption.id
    assert await joinable(pool, site_user_id=8) is None
    assert await joinable(pool, host="other.example") is None


async def test_a_member_with_another_wallet_now_joins_the_own_pending_redemption_alone(
    pool: Pool, chain: None
) -> None:
    redemption = await begun(pool)
    await charged_to_ann(pool, redemption)
    moved: dict[str, Any] = {"wallet": OTHER_WALLET}
    strangers: list[dict[str, Any]] = [
        {"site_user_id": 8},
        {"host": "other.example"},
        {"brand_id": OTHER_BRAND},
    ]
    for stranger in strangers:
        assert await joinable(pool, **moved, **stranger) is None
    assert await joinable(pool, uuid4(), **moved) is None
    assert await joinable(pool, **moved) == redemption.id
    await finished(pool, redemption)
    assert await joinable(pool, **moved) is None, "a new redemption is paid by the new wallet"
    await undone(pool)
    assert await joinable(pool, **moved) == redemption.id


# --- payment ----------------------------------------------------------------------------------


ITEM: dict[str, Any] = {"collection_id": None, "item_id": 2**200}


@pytest.mark.parametrize("changes", [{}, ITEM])
async def test_a_matching_fact_pays_a_redemption_and_is_named_in_its_row(
    pool: Pool, changes: dict[str, Any]
) -> None:
    redemption, other = await begun(pool, **changes), await begun(pool, **changes)
    assert await traces(pool, redemption) == RedemptionProgress(is_paid=False, relay=None)
    await on_chain(pool, redemption)
    assert (await traces(pool, redemption)).is_paid
    assert not (await traces(pool, other)).is_paid
    assert await finished(pool, redemption)
    named = "SELECT (paid_block_hash, paid_log_index, paid_block_number, paid_transaction_hash) "
    row = await value(pool, named + "FROM site_redemptions WHERE id = $1", redemption.id)
    log_index = log_index_of(redemption)
    assert row == (
        a_hash(str(redemption.id)),
        log_index,
        1,
        a_hash(f"transaction of {redemption.id}"),
    )


NOT_PAYING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another wallet's claim": ({}, {"user_address": OTHER_WALLET}),
    "a claim of another collection": ({}, {"collection_id": 8}),
    "a cheaper claim": ({}, {"price": Decimal(3 * LTZ - 1)}),
    "a free claim": ({}, {"price": Decimal(0)}),
    "a claim with another reference": ({}, {"reference": bytes(32)}),
    "a claim with more behind the reference": ({}, {"reference": b""}),
    "another wallet's purchase": (ITEM, {"buyer": OTHER_WALLET}),
    "a purchase of another item": (ITEM, {"item_id": Decimal(9)}),
    "a cheaper purchase": (ITEM, {"paid": Decimal(3 * LTZ - 1)}),
    "a free purchase": (ITEM, {"paid": Decimal(0)}),
    "a purchase of two": (ITEM, {"quantity": 2, "paid": Decimal(6 * LTZ)}),
    "a purchase with another reference": (ITEM, {"reference": bytes(32)}),
}


@pytest.mark.parametrize("name", NOT_PAYING)
async def test_a_fact_that_does_not_match_pays_nothing(pool: Pool, name: str) -> None:
    of, wrong = NOT_PAYING[name]
    redemption = await begun(pool, **of)
    if wrong.get("reference") == b"":
        wrong = {"reference": redemption.id.bytes + bytes(15) + b"\x01"}
    await on_chain(pool, redemption, **wrong)
    assert not (await traces(pool, redemption)).is_paid
    async with transaction(pool) as connection:
        assert not await redemption_payments.finish(connection, redemption.id)
    assert (await stored(pool, redemption)).state is RedemptionState.OPEN
    await age(pool, redemption, 11 * MINUTE)
    assert await left_behind(pool) == [redemption.id]


@pytest.mark.parametrize(
    ("of", "fact"), [({}, ITEM | {"item_id": 7}), (ITEM, {"collection_id": 7})]
)
async def test_a_fact_of_the_wrong_kind_pays_nothing(
    pool: Pool, of: dict[str, Any], fact: dict[str, Any]
) -> None:
    redemption = await begun(pool, **of)
    kind: dict[str, Any] = {"collection_id": None, "item_id": None}
    await on_chain(pool, structs.replace(redemption, **(kind | fact)))
    assert not (await traces(pool, redemption)).is_paid


async def test_a_redemptions_own_relay_pays_at_a_price_that_was_lowered_meanwhile(
    pool: Pool,
) -> None:
    redemption = await begun(pool)
    relay = await relayed(pool, redemption)
    await send(pool, await a_relay_lane(pool))
    cheaper = {"price": Decimal(LTZ)}
    await on_chain(pool, redemption, **cheaper)
    assert not (await traces(pool, redemption)).is_paid, "it is another transaction"
    await on_chain(pool, redemption, log_index=1, transaction_hash=a_hash(f"{relay}"), **cheaper)
    assert (await traces(pool, redemption)).is_paid


async def test_one_fact_pays_one_redemption(pool: Pool) -> None:
    redemption, other = await begun(pool), await begun(pool)
    await finished(pool, redemption)
    await finished(pool, other)
    with pytest.raises(asyncpg.UniqueViolationError, match="site_redemptions_by_payment"):
        await value(
            pool,
            "UPDATE site_redemptions SET paid_block_hash = $2, paid_log_index = $3 WHERE id = $1",
            other.id,
            a_hash(str(redemption.id)),
            log_index_of(redemption),
        )


async def test_a_redemptions_relay_is_found_also_after_its_key_was_cleared(pool: Pool) -> None:
    redemption, other = await begun(pool), await begun(pool)
    relay = await relayed(pool, redemption)
    assert await traces(pool, redemption) == RedemptionProgress(is_paid=False, relay=relay)
    await value(pool, "UPDATE relays SET idempotency_key = NULL")
    assert (await traces(pool, redemption)).relay == relay
    assert (await traces(pool, other)).relay is None


async def test_a_callers_relay_with_the_redemptions_key_is_not_the_redemptions(pool: Pool) -> None:
    redemption = await begun(pool)
    plan = a_plan(b"a free claim", redemption.wallet, serialized_per_user=True)
    await write(pool, a_relay(plan, key=redemption.idempotency_key))
    assert (await traces(pool, redemption)).relay is None


# --- lost payments ----------------------------------------------------------------------------


async def undone(pool: Pool, fork: int = 0) -> None:
    """Undoes blocks as the indexer does in a reorg."""
    async with transaction(pool) as connection:
        await reorgs.undo_above(connection, fork)


async def restored(pool: Pool, redemption: NewSiteRedemption) -> bool:
    async with transaction(pool) as connection:
        return await redemption_payments.restore(connection, redemption.id)


async def reversed_(pool: Pool, redemption: NewSiteRedemption) -> bool:
    async with transaction(pool) as connection:
        return await redemption_payments.reverse(connection, redemption.id)


async def lost(pool: Pool) -> list[UUID]:
    async with session(pool) as connection:
        return list(await redemption_payments.list_lost(connection))


async def at_block(pool: Pool, number: int, final: int) -> None:
    await value(
        pool,
        "UPDATE chains SET cursor_number = $1, head_number = $1, final_number = $2",
        number,
        final,
    )


@pytest_asyncio.fixture
async def chain(pool: Pool) -> None:
    await follow(pool, FakeNode())
    await at_block(pool, 9, 0)


@pytest.mark.parametrize("changes", [{}, ITEM])
async def test_a_payment_that_is_mended_away_is_lost_and_its_correction_pays_again(
    pool: Pool, chain: None, changes: dict[str, Any]
) -> None:
    redemption, other = await begun(pool, **changes), await begun(pool, **changes)
    await finished(pool, redemption)
    paid = a_hash(str(redemption.id))
    await on_chain(pool, other, block_hash=paid)
    await finished_only(pool, other)
    async with transaction(pool) as connection:
        replaced = [(paid, log_index_of(redemption))]
        await redemption_payments.mark_lost_of(connection, replaced)
    assert await lost(pool) == [], "the correction has inserted the fact again"
    kept = TableCorrection(remove=[(1, a_hash("another block"), log_index_of(redemption))])
    gone = TableCorrection(remove=[(1, paid, log_index_of(redemption))])
    tables = (
        (perk_facts.correct, "perk_claims") if not changes else (sale_facts.correct, "purchases")
    )
    for correction, expected in ((kept, []), (gone, [redemption.id]), (gone, [redemption.id])):
        async with transaction(pool) as connection:
            change = IndexCorrection((), [(tables[0], {tables[1]: correction})])
            await index_correction.apply(connection, CHAIN_ID, change)
        assert await lost(pool) == expected
    await on_chain(pool, redemption, log_index=3)
    assert await restored(pool, redemption)
    assert await lost(pool) == []


@pytest.mark.parametrize("changes", [{}, ITEM])
async def test_a_payment_moved_by_a_reorg_is_linked_to_the_redemption_again(
    pool: Pool, chain: None, changes: dict[str, Any]
) -> None:
    redemption, other = await begun(pool, **changes), await begun(pool, **changes)
    await finished(pool, redemption)
    await finished(pool, other)
    await undone(pool, 1)
    assert await lost(pool) == [], "their block is still there"
    await undone(pool)
    assert set(await lost(pool)) == {redemption.id, other.id}
    assert not await restored(pool, redemption)
    await on_chain(pool, redemption, block_hash=a_hash("the new block"), block_number=2)
    assert await restored(pool, redemption)
    assert await lost(pool) == [other.id]
    assert not (await stored(pool, redemption)).is_payment_lost
    assert (
        await value(
            pool, "SELECT paid_block_number FROM site_redemptions WHERE id = $1", redemption.id
        )
        == 2
    )


async def test_a_redemption_with_a_lost_payment_is_joined_at_any_age(
    pool: Pool, chain: None
) -> None:
    redemption = await begun(pool)
    await finished(pool, redemption)
    await age(pool, redemption, timedelta(hours=1))
    assert await joinable(pool) is None
    await undone(pool)
    assert await joinable(pool) == redemption.id
    await failed(pool, redemption)
    assert (await stored(pool, redemption)).state is RedemptionState.DONE


@pytest.mark.parametrize("changes", [{}, ITEM])
async def test_after_a_rebuild_payments_are_lost_whose_fact_is_not_in_the_index(
    pool: Pool, chain: None, changes: dict[str, Any]
) -> None:
    true, false = await begun(pool, **changes), await begun(pool, **changes)
    await finished(pool, true)
    await on_chain(pool, false, block_number=2)
    async with transaction(pool) as connection:
        assert await redemption_payments.finish(connection, false.id)
    async with transaction(pool) as connection:
        for table in ("perk_claims", "purchases"):
            await connection.execute(f"DELETE FROM {table} WHERE block_number = 2")
        above: int | None = -1
        while above is not None:
            above = await reconciling.mark_lost_payments(connection, above)
    assert await lost(pool) == [false.id]


async def rebuilt_for(pool: Pool, perk_nft: Address) -> None:
    """Leaves what a rebuild leaves that was ordered because the settings name this PerkNFT."""
    async with transaction(pool) as connection:
        await connection.execute("UPDATE chains SET contracts = $1", [LTZ_AT, perk_nft])
        await connection.execute("DELETE FROM perk_claims")
        above: int | None = -1
        while above is not None:
            above = await reconciling.mark_lost_payments(connection, above)


async def paid_at(pool: Pool, state: Sending, succeeded: bool | None) -> SiteRedemption:
    """A redemption of an hour ago that its own transaction to PERKS paid, in this state by now."""
    redemption = await begun(pool)
    await relayed(pool, redemption)
    (row,) = await send(pool, await a_relay_lane(pool))
    await finished(pool, redemption)
    await age(pool, redemption, timedelta(hours=1))
    await value(
        pool,
        "UPDATE transactions SET state = $2, succeeded = $3, block_number = 1, block_hash = $4 "
        "WHERE id = $1",
        row.id,
        state.value,
        succeeded,
        None if succeeded is None else a_hash("block 1"),
    )
    return redemption


async def books_lack(pool: Pool) -> list[str]:
    (check,) = (check for check in SITE_CHECKS if check.kind == "redemption_without_fact")
    async with session(pool) as connection:
        return [row["id"] for row in await connection.fetch(check.sql, None, 20)]


async def test_after_a_contract_was_replaced_what_was_paid_there_is_not_lost(
    pool: Pool, chain: None
) -> None:
    redemption = await paid_at(pool, Sending.CONFIRMED, True)
    await rebuilt_for(pool, a_wallet(0x7777))
    assert (await lost(pool), await joinable(pool), await books_lack(pool)) == ([], None, [])
    await rebuilt_for(pool, PERKS)
    assert (await lost(pool), await joinable(pool)) == ([redemption.id], redemption.id)
    await value(pool, "UPDATE site_redemptions SET payment_lost_at = now() - interval '1 hour'")
    assert await books_lack(pool) == [str(redemption.id)]


async def test_a_payment_at_a_replaced_contract_is_decided_by_its_transaction(
    pool: Pool, chain: None
) -> None:
    """An earlier version marked the payment as lost, or a reorg did just before the replacement."""
    redemption = await paid_at(pool, Sending.MINED, True)
    await confirmed_other_relay(pool)
    await undone(pool)
    assert await joinable(pool) == redemption.id
    await rebuilt_for(pool, a_wallet(0x7777))
    assert await joinable(pool) is None, "no fact would ever end the wait"
    assert not await restored_by_receipt(pool, redemption), "the transaction is not final"
    await value(pool, "UPDATE transactions SET state = 'confirmed'")
    await value(pool, "UPDATE chains SET contracts[2] = $1", PERKS)
    assert not await restored_by_receipt(pool, redemption), "the index shows its fact"
    await value(pool, "UPDATE chains SET contracts[2] = $1", a_wallet(0x7777))
    assert await restored_by_receipt(pool, redemption)
    assert (await lost(pool), await reversed_(pool, redemption)) == ([], False)
    assert (await stored(pool, redemption)).state is RedemptionState.DONE


async def confirmed_other_relay(pool: Pool) -> None:
    """The wallet's relay for something else, which is final."""
    await write(pool, a_relay(a_plan(b"another call", WALLET)))
    (row,) = await send(pool, await a_relay_lane(pool), first_nonce=1)
    await value(
        pool,
        "UPDATE transactions SET state = 'confirmed', succeeded = true, block_number = 1, "
        "block_hash = $2 WHERE id = $1",
        row.id,
        a_hash("block 1"),
    )


async def restored_by_receipt(pool: Pool, redemption: NewSiteRedemption) -> bool:
    async with transaction(pool) as connection:
        return await redemption_payments.restore_by_receipt(connection, redemption.id)


ENDS: dict[str, tuple[Sending, bool | None]] = {
    "reverted": (Sending.REVERTED, False),
    "displaced": (Sending.DISPLACED, None),
    "cancelled": (Sending.CANCELLED, False),
}


@pytest.mark.parametrize("end", ENDS)
async def test_a_redemption_that_can_no_longer_be_paid_is_reversed_once_and_announced(
    pool: Pool, chain: None, end: str
) -> None:
    async with session(pool) as connection:
        brand = a_brand(id=hex_of(BRAND), webhook_url="https://shop.example/hook")
        await brands.apply(connection, brand, SEALER)
    await insert_member(pool, ANN)
    redemption = await begun(pool)
    await relayed(pool, redemption)
    lane = await a_relay_lane(pool)
    (row,) = await send(pool, lane)
    await finished(pool, redemption)
    await undone(pool)
    await at_block(pool, 9, 5)
    assert await spent_in_all(pool) == redemption.price
    assert not await reversed_(pool, redemption), "the operator publishes it again"
    state, succeeded = ENDS[end]
    await value(
        pool,
        "UPDATE transactions SET state = $2, succeeded = $3, block_number = 3, block_hash = $4 "
        "WHERE id = $1",
        row.id,
        state.value,
        succeeded,
        None if succeeded is None else a_hash("block 3"),
    )
    await at_block(pool, 9, 0)
    assert not await reversed_(pool, redemption), "the block of the payment is not final"
    await at_block(pool, 9, 5)
    assert await reversed_(pool, redemption)
    assert not await reversed_(pool, redemption)
    await on_chain(pool, redemption, block_number=6)
    assert not await restored(pool, redemption), "the brand was told that nothing was paid"
    assert (await stored(pool, redemption)).state is RedemptionState.REVERSED
    assert await spent_in_all(pool) == 0
    assert await joinable(pool) is None
    async with session(pool) as connection:
        due = DueWebhook(
            uuid4(), BRAND, "", 1, "redemption_reversed", redemption.id, 1, datetime.now(UTC)
        )
        (body,) = (await webhook_bodies.render(connection, [due])).values()
    assert await value(pool, "SELECT kind FROM webhooks WHERE subject = $1", redemption.id) == (
        "redemption_reversed"
    )
    values = json.loads(body)
    assert (values["confirmationCode"], values["ltzAmount"]) == (redemption.confirmation_code, 3)


async def test_a_lost_payment_without_a_relay_is_waited_for_until_its_height_is_final(
    pool: Pool, chain: None
) -> None:
    """The wallet's owner paid with a transaction of his own."""
    redemption = await begun(pool)
    await finished(pool, redemption)
    await undone(pool)
    assert not await reversed_(pool, redemption)
    await at_block(pool, 9, 1)
    assert await reversed_(pool, redemption)


async def test_a_redemption_does_not_complete_with_a_fact_that_is_being_undone(
    pool: Pool, chain: None
) -> None:
    """The indexer has deleted the fact and not committed, so completing the redemption waits."""
    redemption = await begun(pool)
    await on_chain(pool, redemption)
    async with transaction(pool) as indexer:
        await reorgs.undo_above(indexer, 0)
        ending = asyncio.create_task(finished_only(pool, redemption))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

        async def waits() -> bool:
            return bool(await indexer.fetchval(f"{waiting} AND datname = current_database()"))

        await until(waits)
    assert not await ending
    assert (await stored(pool, redemption)).state is RedemptionState.OPEN


async def finished_only(pool: Pool, redemption: NewSiteRedemption) -> bool:
    async with transaction(pool) as connection:
        return await redemption_payments.finish(connection, redemption.id)


# --- possible later payments ------------------------------------------------------------------

Life = tuple[tuple[Sending, bool | None], ...]
LIVES: dict[str, tuple[Life, bool]] = {
    "signed": (((Sending.SIGNED, None),), True),
    "published": (((Sending.SIGNED, None), (Sending.PUBLISHED, None)), True),
    "mined": (((Sending.SIGNED, None), (Sending.MINED, True)), True),
    "final before it is indexed": (
        ((Sending.SIGNED, None), (Sending.MINED, True), (Sending.CONFIRMED, True)),
        True,
    ),
    "failed": (((Sending.SIGNED, None), (Sending.MINED, False)), True),
    "failed for good": (
        ((Sending.SIGNED, None), (Sending.MINED, False), (Sending.REVERTED, False)),
        False,
    ),
    "displaced": (((Sending.SIGNED, None), (Sending.DISPLACED, None)), False),
}


@pytest.mark.parametrize("life", LIVES)
async def test_a_redemption_that_may_still_be_paid_is_not_failed(pool: Pool, life: str) -> None:
    states, may_come = LIVES[life]
    redemption = await begun(pool)
    await relayed(pool, redemption)
    assert not await failed(pool, redemption), "it is queued"
    lane = await a_relay_lane(pool)
    (row,) = await send(pool, lane)
    async with transaction(pool) as connection:
        for (was, _), (now, succeeded) in pairwise(states):
            inclusion = None if succeeded is None else Inclusion(2, a_hash("block"), succeeded)
            await save(connection, lane, row.id, was, Transaction(now, inclusion))
            await relays.follow(connection, [row.id])
    for key in ("with its key", "without"):
        if key == "without":
            await value(pool, "UPDATE relays SET idempotency_key = NULL")
        assert await failed(pool, redemption) is not may_come
        wanted = RedemptionState.OPEN if may_come else RedemptionState.FAILED
        assert (await stored(pool, redemption)).state is wanted


async def test_a_redemption_has_reverted_once_its_own_transaction_has(pool: Pool) -> None:
    redemption, other = await begun(pool), await begun(pool)
    await relayed(pool, redemption)
    (row,) = await send(pool, lane := await a_relay_lane(pool))
    reverted = Transaction(Sending.MINED, Inclusion(2, a_hash("block"), False))

    async def are_reverted() -> tuple[bool, bool]:
        async with session(pool) as connection:
            return (
                await site_redemptions.is_reverted(connection, redemption),
                await site_redemptions.is_reverted(connection, other),
            )

    assert await are_reverted() == (False, False)
    async with transaction(pool) as connection:
        await save(connection, lane, row.id, Sending.SIGNED, reverted)
        await relays.follow(connection, [row.id])
    assert await are_reverted() == (True, False)
    await on_chain(pool, redemption)
    assert await are_reverted() == (False, False), "another transaction has paid"


async def test_another_relay_or_payment_of_the_wallet_keeps_no_redemption_from_failing(
    pool: Pool,
) -> None:
    redemption = await begun(pool)
    await on_chain(pool, await begun(pool))
    await write(pool, a_relay(a_plan(b"another call", WALLET)))
    assert await failed(pool, redemption)


async def test_failing_a_redemption_uses_up_its_idempotency_key(
    pool: Pool,
) -> None:
    redemption = await begun(pool)
    key = (redemption.wallet, redemption.idempotency_key)
    async with session(pool) as connection:
        (before,) = await relays.read_usage(connection, [key])
    await failed(pool, redemption)
    assert await row_states(pool) == ["failed"]
    late = a_relay(a_plan(user=redemption.wallet), key=redemption.idempotency_key)
    async with session(pool) as connection:
        (usage,) = await relays.read_usage(connection, [key])
        decided_before = structs.replace(late, version=before.version)
        assert await relays.insert(connection, [decided_before]) == [None]
    assert usage.earlier is not None
    assert usage.earlier.fingerprint == redemption.fingerprint
    assert (usage.used, usage.last_serialized_id, usage.has_serialized_in_flight) == (
        0,
        None,
        False,
    )
    assert await failed(pool, redemption), "failing again does nothing"


async def test_open_redemptions_are_abandoned_after_ten_minutes_without_a_fact(pool: Pool) -> None:
    old: Callable[..., Any] = lambda **changes: begun(pool, perk_id=uuid4(), **changes)  # noqa: E731
    lost, young, done, paid = await old(), await old(), await old(), await old()
    ended = await old()
    await failed(pool, ended)
    others = await old(wallet=OTHER_WALLET), await old(brand=OTHER_BRAND)
    await finished(pool, done)
    await on_chain(pool, paid)
    for redemption in (lost, ended, done, paid, *others):
        await age(pool, redemption, 10 * MINUTE + SECOND)
    await age(pool, young, 9 * MINUTE)
    assert await left_behind(pool) == [lost.id]


async def test_an_open_redemption_is_abandoned_as_soon_as_its_revert_is_final(pool: Pool) -> None:
    redemption = await begun(pool)
    await relayed(pool, redemption)
    (row,) = await send(pool, await a_relay_lane(pool))
    states: list[tuple[Sending, list[UUID]]] = [
        (Sending.MINED, []),
        (Sending.REVERTED, [redemption.id]),
    ]
    for state, expected in states:
        await value(
            pool,
            "UPDATE transactions SET state = $2, succeeded = false, block_number = 1, "
            "block_hash = $3 WHERE id = $1",
            row.id,
            state.value,
            a_hash("block 1"),
        )
        assert await left_behind(pool) == expected


# --- offers -----------------------------------------------------------------------------------


async def test_offers_are_the_requested_perks_that_are_indexed(pool: Pool) -> None:
    collection = "INSERT INTO collections VALUES ($1, $2, $2, $3, $4, $5, $6, 3, $7, '', $8)"
    await value(pool, collection, 1, BRAND, Decimal(0), 0, 0, True, False, 9)
    await value(pool, collection, 2, BRAND, Decimal(10**30), 9, 2, False, True, 4)
    await value(pool, collection, 3, BRAND, Decimal(0), 0, 0, True, False, 9)
    item = "INSERT INTO items VALUES ($1, $2, $2, $3, $4, $5, 1, true, false, '')"
    await value(pool, item, Decimal(2**200), OTHER_BRAND, Decimal(5), 10, 10)
    async with session(pool) as connection:
        offered = await site_redemptions.read_offers(connection, [1, 2, 4], [2**200, 7])
    assert offered.of(1, None) == Offer(BRAND, 0, is_active=True, left=None)
    assert offered.of(2, None) == Offer(
        BRAND, 10**30, is_active=False, left=5, max_per_user=2, needs_signature=True
    )
    assert offered.of(None, 2**200) == Offer(OTHER_BRAND, 5, is_active=True, left=0)
    assert [offered.of(3, None), offered.of(4, None), offered.of(None, 7)] == [None] * 3

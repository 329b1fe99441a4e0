"""Charge redemptions: the charges in flight, and idempotent writes."""

import asyncio
import random
from typing import Literal
from uuid import uuid4

import pytest
import pytest_asyncio

from ltzd.errors import IdempotencyKeyReused
from ltzd.rules.operator.transactions import State
from ltzd.store import perk_charges as redemptions
from ltzd.store.database import Pool, session, transaction
from ltzd.store.perk_charges import NewChargeRedemption
from ltzd.store.relayer import relays
from ltzd.values import Address
from tests.support.relays.lanes import OTHER_RELAYER, RELAYER
from tests.support.rows.core import BRAND, a_wallet, running, value
from tests.support.rows.perk_facts import token_of
from tests.support.rows.redemptions import (
    CHARGES,
    HOLDER,
    OTHER_TOKEN,
    TOKEN,
    RedemptionRows,
    a_redemption,
    redemption_rows,
)
from tests.support.waiting import until

OTHER_BRAND = a_wallet(0xC)
NONCE = "n" * 16


@pytest_asyncio.fixture
async def rows(pool: Pool) -> RedemptionRows:
    return await redemption_rows(pool)


# --- charges in flight ------------------------------------------------------------------------

History = tuple[tuple[State, bool | None], ...]
HISTORIES: dict[str, tuple[History, bool]] = {
    "queued": ((), True),
    "signed": (((State.SIGNED, None),), True),
    "published": (((State.SIGNED, None), (State.PUBLISHED, None)), True),
    "mined": (((State.SIGNED, None), (State.MINED, True)), True),
    "final": (((State.SIGNED, None), (State.MINED, True), (State.CONFIRMED, True)), True),
    "reorged": (((State.SIGNED, None), (State.MINED, True), (State.PUBLISHED, None)), True),
    "failed": (((State.SIGNED, None), (State.MINED, False)), False),
    "failed for ever": (
        ((State.SIGNED, None), (State.MINED, False), (State.REVERTED, False)),
        False,
    ),
    "failed and reorged": (
        ((State.SIGNED, None), (State.MINED, False), (State.PUBLISHED, None)),
        True,
    ),
    "displaced": (((State.SIGNED, None), (State.DISPLACED, None)), False),
}


async def replay(rows: RedemptionRows, redemption: NewChargeRedemption, history: History) -> None:
    was = State.SIGNED
    for state, succeeded in history:
        if state is State.SIGNED:
            await rows.sign(redemption)
        else:
            await rows.move(redemption, was, state, succeeded)
        was = state


@pytest.mark.parametrize("history", HISTORIES)
async def test_a_redemption_is_in_flight_unless_it_failed(
    rows: RedemptionRows, history: str
) -> None:
    steps, is_under_way = HISTORIES[history]
    await replay(rows, await rows.write(a_redemption(3)), steps)

    stored = await rows.token_charges()
    assert (stored.token.used, stored.under_way) == (0, 3 if is_under_way else 0)
    assert (await rows.token_charges(OTHER_TOKEN)).under_way == 0


@pytest.mark.parametrize("history", ["signed", "published", "mined", "final"])
async def test_an_indexed_redemption_is_not_in_flight_unless_a_reorg_undoes_it(
    rows: RedemptionRows, history: str
) -> None:
    """The index may see a redemption before or after its lane does."""
    redemption = await rows.write(a_redemption(3))
    await replay(rows, redemption, HISTORIES[history][0])
    block = await rows.index(redemption, CHARGES - 3)
    known = await rows.token_charges()
    await rows.ledger.undo_above(block - 1)
    undone = await rows.token_charges()

    assert (known.token.used, known.under_way) == (3, 0)
    assert (undone.token.used, undone.under_way) == (0, 3)


async def test_a_redemption_that_the_network_refuses_blocks_no_later_one(
    rows: RedemptionRows,
) -> None:
    """The charges that it will not redeem are available to later redemptions."""
    redemption, other = a_redemption(3), a_redemption(2, OTHER_TOKEN)
    for each in (redemption, other):
        await rows.sign(await rows.write(each))
    assert (await rows.token_charges()).under_way == 3
    await rows.abandon(redemption)
    assert (await rows.token_charges()).under_way == 0
    assert (await rows.token_charges(OTHER_TOKEN)).under_way == 2


async def test_a_redemption_that_cannot_be_signed_has_failed(rows: RedemptionRows) -> None:
    redemption = await rows.write(a_redemption(3))
    async with transaction(rows.pool) as connection:
        await relays.refuse(connection, {rows.relays[redemption.id]: "its gas limit is too small"})
    failed = await rows.stored(redemption)
    assert failed is not None
    assert failed.succeeded is False
    assert (await rows.token_charges()).under_way == 0


async def test_a_redemption_of_another_program_does_not_hide_one_of_ltzd(
    rows: RedemptionRows,
) -> None:
    """A fact with another reference is another redemption."""
    redemption, stranger = await rows.write(a_redemption(3)), a_redemption(2)
    await rows.index(stranger, CHARGES - 2)
    stored = await rows.token_charges()
    assert (stored.token.used, stored.under_way) == (2, 3)
    assert await rows.stored(redemption) is not None


Step = Literal["write", "sign", "mine", "fail", "index", "reorg"]


async def test_remaining_charges_equal_the_model_in_random_sequences(
    rows: RedemptionRows,
) -> None:
    """A random walk in which lanes and indexer see the same blocks at different times."""
    chance = random.Random(6)
    state: dict[NewChargeRedemption, str] = {}
    facts: list[tuple[int, NewChargeRedemption]] = []
    for _ in range(120):
        # The chain executes redemptions in order: the oldest that may take the step is first.
        step: Step = chance.choice(("write", "sign", "mine", "fail", "index", "reorg"))
        of = {
            name: [redemption for redemption, at in state.items() if at == name]
            for name in state.values()
        }
        match step:
            case "write":
                state[await rows.write(a_redemption(chance.randint(1, 9)))] = "queued"
            case "sign" if ready := of.get("queued"):
                await rows.sign(ready[0])
                state[ready[0]] = "signed"
            case "mine" | "fail" if ready := of.get("signed"):
                await rows.move(ready[0], State.SIGNED, State.MINED, step == "mine")
                state[ready[0]] = "mined" if step == "mine" else "failed"
            case "index":
                seen = {redemption for _, redemption in facts}
                ready = [*of.get("signed", ()), *of.get("mined", ())]
                for redemption in [redemption for redemption in ready if redemption not in seen][
                    :1
                ]:
                    left = CHARGES - redemption.amount - sum(other.amount for other in seen)
                    facts.append((await rows.index(redemption, left), redemption))
            case "reorg" if facts:
                block, _ = facts.pop()
                await rows.ledger.undo_above(block - 1)
        spoken_for = {redemption for redemption, at in state.items() if at != "failed"}
        spoken_for |= {redemption for _, redemption in facts}
        stored = await rows.token_charges()
        assert stored.token.used == sum(redemption.amount for _, redemption in facts)
        left = CHARGES - sum(redemption.amount for redemption in spoken_for)
        assert stored.token.remaining - stored.under_way == left, (step, state)


async def test_a_block_written_during_the_read_is_counted_once(rows: RedemptionRows) -> None:
    """The token's row and the charges in flight are read from one snapshot."""
    waiting = [await rows.write(a_redemption()) for _ in range(60)]

    async def write_blocks() -> None:
        for number, redemption in enumerate(waiting, start=1):
            await rows.index(redemption, CHARGES - number)
        await asyncio.Event().wait()

    async def all_is_indexed() -> bool:
        stored = await rows.token_charges()
        assert stored.token.remaining - stored.under_way == CHARGES - len(waiting)
        return stored.token.used == len(waiting)

    async with running(write_blocks()):
        while not await all_is_indexed():
            pass


async def test_an_unclaimed_token_has_no_charges_row(rows: RedemptionRows) -> None:
    async with session(rows.pool) as connection:
        for token in (token_of(7, 3), token_of(8, 1), 0, -1, 2**256 - 1):
            assert await redemptions.read_token_charges(connection, token) is None


# --- relay wallets ----------------------------------------------------------------------------


async def wallet_of(rows: RedemptionRows, redemption: NewChargeRedemption) -> Address | None:
    stored: bytes | None = await value(
        rows.pool, "SELECT wallet FROM relays WHERE id = $1", rows.relays[redemption.id]
    )
    return None if stored is None else Address(stored)


async def test_redemptions_of_a_token_stay_with_the_relay_wallet_of_the_earlier_ones(
    rows: RedemptionRows,
) -> None:
    """With two wallets the later redemption could be mined first and both would revert."""
    mine, other = RELAYER.address, OTHER_RELAYER.address
    first = await rows.write(a_redemption(), mine)
    behind = await rows.write(a_redemption(), other)
    elsewhere = await rows.write(a_redemption(token=OTHER_TOKEN), other)
    await rows.sign(first)
    behind_signed = await rows.write(a_redemption(), other)
    assert [await wallet_of(rows, redemption) for redemption in (first, behind, behind_signed)] == [
        mine
    ] * 3
    assert await wallet_of(rows, elsewhere) == other

    await rows.move(first, State.SIGNED, State.MINED, True)
    for redemption in (behind, behind_signed):
        await rows.sign(redemption)
        await rows.move(redemption, State.SIGNED, State.MINED, True)
    assert await wallet_of(rows, await rows.write(a_redemption(), other)) == other


@pytest.mark.parametrize("is_published", [False, True])
async def test_a_redemption_follows_the_wallet_that_has_signed_the_earlier_one(
    rows: RedemptionRows, is_published: bool
) -> None:
    """The earlier one named no wallet, so any might have sent it."""
    first = await rows.write(a_redemption())
    await rows.sign(first)
    if is_published:
        await rows.move(first, State.SIGNED, State.PUBLISHED)
    later = await rows.write(a_redemption(), OTHER_RELAYER.address)
    assert await wallet_of(rows, later) == RELAYER.address


async def test_a_redemption_counts_towards_no_users_hour_and_is_not_serialized(
    rows: RedemptionRows,
) -> None:
    await rows.write(a_redemption())
    async with session(rows.pool) as connection:
        (stored,) = await relays.read_usage(connection, [(HOLDER, None)])
    assert (stored.used, stored.has_serialized_in_flight) == (0, False)


# --- idempotency ------------------------------------------------------------------------------


async def test_a_redemption_is_found_by_its_brands_key_with_its_progress(
    rows: RedemptionRows,
) -> None:
    redemption = await rows.write(
        a_redemption(2, idempotency_key="till-1-0001", reference="receipt")
    )
    async with session(rows.pool) as connection:
        queued = await redemptions.by_key(connection, BRAND, "till-1-0001")
        assert await redemptions.by_key(connection, OTHER_BRAND, "till-1-0001") is None
        assert await redemptions.by_key(connection, BRAND, "till-1-0002") is None
    assert queued is not None
    assert (queued.id, queued.relay_id) == (redemption.id, rows.relays[redemption.id])
    assert (queued.transaction_hash, queued.succeeded, queued.mined_at) == (None, None, None)
    assert queued.remaining == CHARGES - 2

    await rows.sign(redemption)
    unseen = await rows.stored(redemption)
    assert unseen is not None
    assert unseen.transaction_hash is None, "no node has accepted it yet"
    await rows.taken(redemption)
    sent = await rows.stored(redemption)
    assert sent is not None
    assert sent.transaction_hash is not None
    assert sent.succeeded is None
    await rows.move(redemption, State.SIGNED, State.MINED, False)
    failed = await rows.stored(redemption)
    assert failed is not None
    assert (failed.transaction_hash, failed.succeeded) == (sent.transaction_hash, False)


async def test_a_key_is_written_once_for_each_brand(rows: RedemptionRows) -> None:
    await rows.write(a_redemption(idempotency_key="till-1-0001"))
    await rows.write(a_redemption(idempotency_key="till-1-0001", brand=OTHER_BRAND))
    with pytest.raises(IdempotencyKeyReused):
        await rows.write(a_redemption(idempotency_key="till-1-0001", token=OTHER_TOKEN))


async def test_a_withdrawn_redemption_leaves_no_row(rows: RedemptionRows) -> None:
    redemption = await rows.write(a_redemption(idempotency_key="till-1-0001"))
    async with session(rows.pool) as connection:
        assert await relays.withdraw(connection, rows.relays[redemption.id])
        assert await redemptions.by_key(connection, BRAND, "till-1-0001") is None
    assert await rows.stored(redemption) is None
    assert (await rows.token_charges()).under_way == 0
    await rows.write(a_redemption(idempotency_key="till-1-0001"))


async def test_a_withdrawn_redemption_takes_the_later_ones_of_its_token_with_it(
    rows: RedemptionRows,
) -> None:
    """The earlier one may still be sent, and its caller waits for it."""
    first, withdrawn, later, elsewhere = [
        await rows.write(a_redemption(token=token)) for token in (TOKEN, TOKEN, TOKEN, OTHER_TOKEN)
    ]
    stored = await rows.stored(withdrawn)
    assert stored is not None
    async with transaction(rows.pool) as connection:
        await redemptions.lock_token(connection, TOKEN)
        await redemptions.withdraw(connection, stored)
    kept = [await rows.stored(each) for each in (first, withdrawn, later, elsewhere)]
    assert [each is not None for each in kept] == [True, False, False, True]


async def test_a_signed_redemption_is_not_withdrawn_nor_are_the_later_ones(
    rows: RedemptionRows,
) -> None:
    signed, later = [await rows.write(a_redemption()) for _ in range(2)]
    await rows.sign(signed)
    stored = await rows.stored(signed)
    assert stored is not None
    async with transaction(rows.pool) as connection:
        await redemptions.lock_token(connection, TOKEN)
        await redemptions.withdraw(connection, stored)
    assert await rows.stored(signed) is not None
    assert await rows.stored(later) is not None


async def test_a_redemptions_key_is_kept_when_expired_relays_are_deleted(
    rows: RedemptionRows,
) -> None:
    redemption = await rows.write(a_redemption(idempotency_key="till-1-0001"))
    await replay(rows, redemption, HISTORIES["final"][0])
    async with session(rows.pool) as connection:
        await connection.execute("UPDATE relays SET created_at = now() - interval '30 days'")
        await relays.delete_expired(connection)
        stored = await redemptions.by_key(connection, BRAND, "till-1-0001")
    assert stored is not None
    assert stored.succeeded is True


async def test_of_concurrent_uses_of_a_nonce_one_succeeds(pool: Pool) -> None:
    async def spend(brand: Address) -> bool:
        async with transaction(pool) as connection:
            return await redemptions.use_nonce(connection, brand, NONCE, uuid4())

    assert sorted(await asyncio.gather(*(spend(BRAND) for _ in range(10)))) == [False] * 9 + [True]
    assert await spend(OTHER_BRAND)
    assert not await spend(OTHER_BRAND)


async def test_a_rolled_back_nonce_can_be_used_again(pool: Pool) -> None:
    async with session(pool) as connection:
        undone = connection.transaction()
        await undone.start()
        assert await redemptions.use_nonce(connection, BRAND, NONCE, uuid4())
        await undone.rollback()
        assert await redemptions.use_nonce(connection, BRAND, NONCE, uuid4())


async def test_a_tokens_redemptions_are_written_one_after_the_other(rows: RedemptionRows) -> None:
    async def someone_waits() -> bool:
        waiting: int = await value(
            rows.pool, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        )
        return waiting == 1

    async with transaction(rows.pool) as connection:
        await redemptions.lock_token(connection, TOKEN)
        behind = asyncio.create_task(rows.write(a_redemption()))
        await until(someone_waits)
        await rows.write(a_redemption(token=OTHER_TOKEN))
        assert (await rows.token_charges()).under_way == 0
    await behind
    assert (await rows.token_charges()).under_way == 1

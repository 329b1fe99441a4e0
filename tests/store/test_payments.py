"""Payments and reversals: recorded once each, and joined in either order."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import RewardMinted
from ltzd.rules.payments.reversals import Reversal
from ltzd.rules.payments.sessions import NO_BRAND, Payment
from ltzd.store import payments, wakeups
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Pool, connect, session, transaction
from ltzd.store.indexer import mint_facts
from ltzd.store.payments import PaymentOutcome, RecordedPayment, ReversalRow
from ltzd.values import LTZ, reward_reference
from tests.support.chain.fake_node import FakeNode
from tests.support.rows.books import reconcile
from tests.support.rows.core import BRAND, a_hash, a_wallet, follow, value
from tests.support.surfaces.event_action import SEALER, a_brand
from tests.support.waiting import until

WALLET = a_wallet(0xA11CE)
HOOK = "https://hooks.example/ltz"


def a_payment(session_id: str = "cs_1", intent: str = "pi_1", **changes: Any) -> Payment:
    values: dict[str, Any] = {"brand_id": BRAND, "wallet": WALLET, "usd_cents": 500}
    return Payment(session_id=session_id, payment_intent_id=intent, **values | changes)


def a_refund(id_: str = "re_1", cents: int = 200, intent: str = "pi_1") -> Reversal:
    return Reversal(id_, "refund", intent, cents, "duplicate")


async def recorded(pool: Pool, payment: Payment) -> RecordedPayment:
    async with transaction(pool) as connection:
        await payments.lock_intent(connection, payment.payment_intent_id)
        return await payments.record(connection, payment)


async def reversed_(pool: Pool, reversal: Reversal) -> ReversalRow | None:
    async with transaction(pool) as connection:
        await payments.lock_intent(connection, reversal.payment_intent_id)
        return await payments.record_reversal(connection, reversal)


async def apply(pool: Pool, **changes: Any) -> None:
    async with transaction(pool) as connection:
        await brands.apply(connection, a_brand(**changes), SEALER)


async def webhooks(pool: Pool) -> list[tuple[Any, ...]]:
    async with session(pool) as connection:
        rows = await connection.fetch("SELECT brand_id, kind, subject, state FROM webhooks")
    return [tuple(row) for row in rows]


async def notified_channels(url: str, act: Callable[[], Awaitable[object]]) -> list[str]:
    """Returns the channels notified while `act` runs."""
    listener = await connect(url, "test")
    channels: list[str] = []
    ended = asyncio.Event()

    def on_notification(_connection: object, _pid: int, channel: str, origin: object) -> None:
        channels.append(channel)
        if origin == "end":
            ended.set()

    for channel in (wakeups.REWARDS, wakeups.WEBHOOKS):
        await listener.add_listener(channel, on_notification)
    await act()
    await listener.execute("SELECT pg_notify('ltzd_webhooks', 'end')")
    await asyncio.wait_for(ended.wait(), 20)
    await listener.close()
    return channels[:-1]


# --- payments -----------------------------------------------------------------------------------


async def test_a_payment_is_written_with_its_reward_and_found_again(pool: Pool) -> None:
    payment = a_payment()
    first = await recorded(pool, payment)
    again = await recorded(pool, payment)

    async with session(pool) as connection:
        rows = await connection.fetch("SELECT id, kind, brand_id, wallet, ltz FROM rewards")
        assert await payments.find(connection, "cs_1") == payment
        assert await payments.find(connection, "cs_2") is None
    assert (first, again.outcome) == (RecordedPayment(PaymentOutcome.NEW), PaymentOutcome.KNOWN)
    assert [tuple(row) for row in rows] == [(payments.reward_id("cs_1"), 2, BRAND, WALLET, 5_000)]


async def test_the_reward_id_of_a_session_is_deterministic() -> None:
    """The id is in the reference on chain, so no version may compute another one."""
    assert str(payments.reward_id("cs_1")) == "17de278f-dc71-5065-809e-a09f1048d5b8"
    assert payments.reward_id("cs_1") != payments.reward_id("cs_2")


async def test_of_concurrent_inserts_of_a_payment_one_is_new(pool: Pool) -> None:
    outcomes = await asyncio.gather(*(recorded(pool, a_payment()) for _ in range(30)))

    assert sorted(each.outcome.value for each in outcomes) == ["known"] * 29 + ["new"]
    assert await value(pool, "SELECT count(*) FROM rewards") == 1


async def test_the_mint_lane_is_woken_once(database_url: str, pool: Pool) -> None:
    async def act() -> None:
        await recorded(pool, a_payment())
        await recorded(pool, a_payment())

    assert await notified_channels(database_url, act) == [wakeups.REWARDS]


async def test_an_inconsistent_payment_row_is_refused(pool: Pool) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await value(
            pool,
            """
            INSERT INTO payments (session_id, reward_id, brand_id, wallet, usd_cents, ltz,
                                  payment_intent_id)
            VALUES ('cs_1', gen_random_uuid(), $1, $1, 500, 5001, 'pi_1')
            """,
            WALLET,
        )


# --- reversals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("comes_first", ["payment", "reversal"])
async def test_a_reversal_is_joined_to_its_payment_in_either_order(
    database_url: str, pool: Pool, comes_first: str
) -> None:
    await apply(pool, webhook_url=HOOK)
    rows: list[ReversalRow | None] = []

    async def act() -> None:
        if comes_first == "payment":
            await recorded(pool, a_payment())
        rows.append(await reversed_(pool, a_refund()))
        assert await reversed_(pool, a_refund()) is None
        if comes_first == "reversal":
            rows[:] = (await recorded(pool, a_payment())).reversals

    channels = await notified_channels(database_url, act)

    (row,) = rows
    assert row is not None
    assert (row.session_id, row.is_announced, row.reversal) == ("cs_1", True, a_refund())
    assert await value(pool, "SELECT session_id FROM payment_reversals") == "cs_1"
    assert await webhooks(pool) == [(BRAND, "payment_reversed", row.id, "pending")]
    assert sorted(channels) == [wakeups.REWARDS, wakeups.WEBHOOKS]


async def test_a_reversal_keeps_its_payment(pool: Pool) -> None:
    await recorded(pool, a_payment())
    await reversed_(pool, a_refund())

    assert (await recorded(pool, a_payment("cs_2"))).reversals == ()

    assert await value(pool, "SELECT session_id FROM payment_reversals") == "cs_1"


async def test_a_reversal_of_an_unknown_payment_causes_no_webhook(
    database_url: str, pool: Pool
) -> None:
    await apply(pool, webhook_url=HOOK)

    assert await notified_channels(database_url, lambda: reversed_(pool, a_refund())) == []

    assert await value(pool, "SELECT session_id FROM payment_reversals") is None
    assert await webhooks(pool) == []


@pytest.mark.parametrize("comes_first", ["payment", "reversal"])
@pytest.mark.parametrize("why", ["no url", "disabled", "nobody's"])
async def test_a_reversal_without_a_brand_or_an_enabled_endpoint_causes_no_webhook(
    pool: Pool, comes_first: str, why: str
) -> None:
    await apply(pool, **({} if why == "no url" else {"webhook_url": HOOK}))
    if why == "disabled":
        await value(pool, "UPDATE brands SET disabled_at = now()")
    payment = a_payment(brand_id=NO_BRAND if why == "nobody's" else BRAND)

    if comes_first == "payment":
        await recorded(pool, payment)
    row = await reversed_(pool, a_refund())
    if comes_first == "reversal":
        (row,) = (await recorded(pool, payment)).reversals

    assert row is not None
    assert (row.session_id, row.is_announced) == ("cs_1", False)
    assert await webhooks(pool) == []


async def test_a_concurrent_payment_and_reversal_are_always_joined(pool: Pool) -> None:
    await apply(pool, webhook_url=HOOK)
    both: list[Awaitable[object]] = []
    for number in range(40):
        payment = recorded(pool, a_payment(f"cs_{number}", f"pi_{number}"))
        reversal = reversed_(pool, a_refund(f"re_{number}", 200, f"pi_{number}"))
        both += [payment, reversal] if number % 2 else [reversal, payment]
    await asyncio.gather(*both)

    joined = "SELECT count(*) FROM payment_reversals WHERE substr(session_id, 4) = substr($1, 4)"
    for number in range(40):
        query = joined + " AND provider_id = $1"
        assert await value(pool, query, f"re_{number}") == 1
    assert len(await webhooks(pool)) == 40


async def test_a_session_that_was_fully_refunded_before_is_not_minted(pool: Pool) -> None:
    await reversed_(pool, a_refund("re_1", 200))
    await reversed_(pool, a_refund("re_2", 300))

    assert (await recorded(pool, a_payment())).outcome is PaymentOutcome.REFUNDED

    assert await value(pool, "SELECT count(*) FROM payments") == 0
    assert await value(pool, "SELECT count(*) FROM rewards") == 0
    async with session(pool) as connection:
        assert await payments.refunds_of(connection, "pi_1") == {"re_1": 200, "re_2": 300}


async def test_a_payment_refunded_after_its_mint_is_still_found(pool: Pool) -> None:
    await recorded(pool, a_payment())
    await reversed_(pool, a_refund("re_1", 500))

    assert (await recorded(pool, a_payment())).outcome is PaymentOutcome.KNOWN


async def test_an_earlier_partial_refund_or_dispute_does_not_stop_the_mint(pool: Pool) -> None:
    await reversed_(pool, a_refund("re_1", 499))
    await reversed_(pool, Reversal("dp_1", "dispute", "pi_1", 500, None))

    result = await recorded(pool, a_payment())

    assert result.outcome is PaymentOutcome.NEW
    assert {row.reversal.provider_id for row in result.reversals} == {"re_1", "dp_1"}
    async with session(pool) as connection:
        assert await payments.refunds_of(connection, "pi_1") == {"re_1": 499}


# --- payments whose rows a restore has lost -------------------------------------------------------


def a_mint_of(payment: Payment, **changes: Any) -> RewardMinted:
    reference = reward_reference(payments.reward_id(payment.session_id), 2, 7)
    position = LogPosition(1, a_hash("1"), 0, a_hash("the lost mint"))
    return replace(RewardMinted(position, payment.wallet, reference, payment.ltz * LTZ), **changes)


async def index(pool: Pool, mint: RewardMinted) -> None:
    async with transaction(pool) as connection:
        await connection.execute("SELECT FROM chains FOR UPDATE")
        await mint_facts.insert_mints(connection, [mint])


async def test_a_payment_that_the_index_shows_as_minted_gets_that_mint(pool: Pool) -> None:
    await follow(pool, FakeNode())
    await index(pool, a_mint_of(a_payment()))
    assert (await recorded(pool, a_payment())).outcome is PaymentOutcome.FOUND_MINTED
    assert (await recorded(pool, a_payment())).outcome is PaymentOutcome.KNOWN
    async with session(pool) as connection:
        row = await connection.fetchrow("SELECT seq, mint_transaction_hash FROM rewards")
    assert tuple(row) == (7, a_hash("the lost mint"))
    async with session(pool) as connection:
        kinds = {each.kind for each in await reconcile(connection, 20)}
    assert kinds.isdisjoint({"foreign_mint", "mint_not_told", "payment_without_reward"})


async def test_a_mint_that_a_reorg_undid_or_of_another_amount_pays_no_payment(pool: Pool) -> None:
    await follow(pool, FakeNode())
    await index(pool, a_mint_of(a_payment()))
    async with transaction(pool) as connection:
        await mint_facts.undo_mints_above(connection, 0)
    assert (await recorded(pool, a_payment())).outcome is PaymentOutcome.NEW
    await index(pool, a_mint_of(a_payment("cs_2"), amount=1))
    assert (await recorded(pool, a_payment("cs_2", "pi_2"))).outcome is PaymentOutcome.NEW


async def test_a_payment_sees_the_mint_that_is_being_indexed(pool: Pool) -> None:
    await follow(pool, FakeNode())
    async with transaction(pool) as indexer:
        await indexer.execute("SELECT FROM chains FOR UPDATE")
        await mint_facts.insert_mints(indexer, [a_mint_of(a_payment())])
        payment = asyncio.create_task(recorded(pool, a_payment()))

        async def waits() -> bool:
            waiting = (
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            return payment.done() or bool(await value(pool, waiting))

        await until(waits)
    assert (await payment).outcome is PaymentOutcome.FOUND_MINTED

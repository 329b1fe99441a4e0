"""Webhooks: inserted once with their fact, claimed by one sender at a time, settled, deleted."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.rules.brands.configuration import Brand
from ltzd.store import wakeups
from ltzd.store.brands import records as brand_records
from ltzd.store.database import Pool, connect, session, transaction
from ltzd.store.operator import rewards
from ltzd.store.webhooks import bodies as webhook_bodies
from ltzd.store.webhooks import queue as webhooks
from ltzd.store.webhooks import records as webhook_records
from ltzd.store.webhooks.queue import DeliveryOutcome, DueWebhook
from ltzd.store.webhooks.records import WebhookFacts
from ltzd.values import Address, checksummed, hex_of
from tests.support.rows.core import a_hash, a_lane, value
from tests.support.rows.explained import Explained
from tests.support.services.webhooks import EMAIL, Receiver, World
from tests.support.waiting import until

MINUTE = timedelta(minutes=1)
NO_BRAND = Brand(id="0x" + "99" * 20, name="Nobody's", domains=("nobody.example",))


@pytest_asyncio.fixture
async def world(database_url: str, pool: Pool) -> World:
    return World(database_url, pool, Receiver("https://shop.example"))


@pytest_asyncio.fixture
async def brand(world: World) -> Brand:
    return await world.brand("/hooks")


async def brands_due(world: World) -> set[Address]:
    async with session(world.pool) as connection:
        return await webhooks.brands_with_due(connection, world.clock.now())


async def claim(world: World, most: int = 100, *brands: Brand) -> list[DueWebhook]:
    addresses = [brand.address for brand in brands] or await brands_due(world)
    now = world.clock.now()
    async with session(world.pool) as connection:
        return await webhooks.claim(connection, dict.fromkeys(addresses, most), now, now + MINUTE)


async def renew(world: World, leased_until: datetime, *claimed: DueWebhook) -> None:
    async with session(world.pool) as connection:
        await webhooks.renew(connection, claimed, leased_until)


async def settle(world: World, *outcomes: DeliveryOutcome) -> list[DeliveryOutcome]:
    async with session(world.pool) as connection:
        return await webhooks.settle(connection, outcomes)


def delivered(due: DueWebhook, at: datetime) -> DeliveryOutcome:
    return DeliveryOutcome(due, at, "delivered", at, 204, None)


def failed(due: DueWebhook, at: datetime, **more: Any) -> DeliveryOutcome:
    return replace(DeliveryOutcome(due, at, "pending", at, 500, "status 500"), **more)


async def test_claimed_webhooks_come_in_the_order_of_their_making(
    world: World, brand: Brand
) -> None:
    await world.minted(brand, 6)
    stored = [row["id"] for row in await world.rows()]
    for minutes, id_ in enumerate(stored):
        await value(
            world.pool,
            "UPDATE webhooks SET created_at = created_at - $2::interval WHERE id = $1 RETURNING id",
            id_,
            minutes * MINUTE,
        )

    assert [due.id for due in await claim(world)] == stored[::-1]


async def body_of(world: World) -> dict[str, Any]:
    """Returns the body of the one webhook that is due."""
    (due,) = await claim(world)
    async with session(world.pool) as connection:
        bodies = await webhook_bodies.render(connection, [due])
    body: dict[str, Any] = msgspec.json.decode(bodies[due.id])
    return body


# --- written with the fact ----------------------------------------------------------------------


async def test_a_mints_webhook_has_exactly_the_fields_of_the_specification(
    world: World, brand: Brand
) -> None:
    (reward,) = await world.minted(brand, ltz=250)
    row = await world.row()
    facts = "SELECT {} FROM rewards JOIN events USING (id)"

    body = await body_of(world)

    assert body == {
        "event": "ltz_distributed",
        "brandId": brand.id,
        "userId": str(await value(world.pool, facts.format("user_id"))),
        "email": EMAIL,
        "walletAddress": checksummed(await value(world.pool, facts.format("wallet"))),
        "ltzAmount": 250,
        "transactionHash": hex_of(a_hash("mint in 7")),
        "timestamp": round(Decimal(str(row["created_at"].timestamp())) * 1000 - Decimal("0.5")),
    }
    assert (row["subject"], row["state"], row["attempts"]) == (reward, "pending", 0)


async def test_only_a_brand_with_an_endpoint_gets_webhooks(world: World, brand: Brand) -> None:
    silent, gone = await world.brand(), await world.brand("/gone")
    async with session(world.pool) as connection:
        await brand_records.switch(connection, gone.address, "disabled", on=True)
    ids = [await world.owed(owner) for owner in (silent, gone, NO_BRAND, brand)]

    await world.mint(*ids)

    assert [row["subject"] for row in await world.rows()] == ids[3:]


async def test_mints_insert_webhooks_except_for_purchases(world: World, brand: Brand) -> None:
    owed = {kind: await world.owed(brand, kind=kind) for kind in (1, 2, 3, 4)}

    await world.mint(*owed.values())

    subjects = {row["subject"] for row in await world.rows()}
    assert subjects == {owed[1], owed[3], owed[4]}


async def test_a_reward_without_an_event_names_its_wallets_user(world: World, brand: Brand) -> None:
    await world.mint(await world.owed(brand, kind=3, event=False))

    body = await body_of(world)

    assert body["userId"] == str(await value(world.pool, "SELECT id FROM users"))
    assert body["email"] == await value(world.pool, "SELECT email_key FROM users")


async def test_a_second_mint_after_a_reorg_inserts_no_second_webhook(
    world: World, brand: Brand
) -> None:
    (reward,) = await world.minted(brand)
    first = await world.row()
    await world.undo(6)
    await world.mint(reward, block=8)

    assert await world.row() == first
    assert (await body_of(world))["transactionHash"] == hex_of(a_hash("mint in 8"))


async def test_a_rebuilt_index_inserts_no_webhooks_that_were_deleted_before(
    world: World, brand: Brand
) -> None:
    (reward,) = await world.minted(brand)
    await value(world.pool, "DELETE FROM webhooks")
    await world.mint(reward)

    assert await world.rows() == []


async def test_senders_are_woken_by_new_webhooks_only(world: World, brand: Brand) -> None:
    payloads: list[object] = []
    async with session(world.pool) as listener:
        await listener.add_listener(
            wakeups.WEBHOOKS, lambda *notification: payloads.append(notification[3])
        )
        await world.minted(await world.brand())
        (reward,) = await world.minted(brand)
        await world.undo(6)
        await world.mint(reward, block=8)
        await listener.execute("SELECT pg_notify($1, 'end')", wakeups.WEBHOOKS)

        async def over() -> bool:
            return "end" in payloads

        await until(over)
        await listener.reset()
    assert payloads == ["", "end"], "the notification has no origin, so this process is woken too"


# --- revoked announcements ----------------------------------------------------------------------


async def test_an_announced_reward_that_fails_finally_is_revoked(
    world: World, brand: Brand
) -> None:
    (reward,) = await world.minted(brand, ltz=40)
    (due,) = await claim(world)
    await settle(world, delivered(due, world.clock.now()))
    await world.undo(6)
    await world.fail(reward, reason="LTZ says: ERC20InvalidReceiver")

    body = await body_of(world)

    first, second = await world.rows()
    assert first["transaction_hash"] == a_hash("mint in 7")
    assert (first["kind"], first["revoked"], first["state"]) == (
        "ltz_distributed",
        True,
        "delivered",
    )
    assert (second["kind"], second["subject"]) == ("ltz_reverted", reward)
    assert list(body) == [
        *("event", "brandId", "userId", "email", "walletAddress", "ltzAmount"),
        *("transactionHash", "timestamp", "reason"),
    ]
    assert (body["event"], body["ltzAmount"], body["transactionHash"], body["reason"]) == (
        "ltz_reverted",
        40,
        first["transaction_hash"] and hex_of(first["transaction_hash"]),
        "LTZ says: ERC20InvalidReceiver",
    )


async def test_the_failure_of_a_reward_whose_announcement_was_never_sent_is_not_announced(
    world: World, brand: Brand
) -> None:
    (reward,) = await world.minted(brand)
    await world.undo(6)
    await world.fail(reward)

    row = await world.row()
    assert (row["kind"], row["state"], row["revoked"]) == ("ltz_distributed", "exhausted", True)


async def test_a_reward_whose_announcement_may_have_arrived_is_revoked(
    world: World, brand: Brand
) -> None:
    (reward,) = await world.minted(brand)
    (due,) = await claim(world)
    await world.undo(6)
    await world.fail(reward)

    assert [row["kind"] for row in await world.rows()] == ["ltz_distributed", "ltz_reverted"]
    await settle(world, failed(due, world.clock.now()))
    assert await world.states() == ["exhausted", "pending"], "a revoked announcement is not retried"


async def test_a_reward_whose_webhook_was_redelivered_by_the_operator_is_revoked(
    world: World, brand: Brand
) -> None:
    (reward,) = await world.minted(brand)
    (due,) = await claim(world)
    async with session(world.pool) as connection:
        assert await webhook_records.replay(connection, [due.id]) == [due.id]
    assert (await world.row())["attempts"] == 0
    await world.undo(6)
    await world.fail(reward)

    assert [row["kind"] for row in await world.rows()] == ["ltz_distributed", "ltz_reverted"]


async def test_a_failure_waits_for_a_concurrent_claim_of_the_announcement(
    world: World, brand: Brand
) -> None:
    (reward,) = await world.minted(brand)
    await world.undo(6)
    lane = await a_lane(world.pool)
    now = world.clock.now()
    async with session(world.pool) as other:
        async with transaction(world.pool) as sender:
            await webhooks.claim(sender, {brand.address: 4}, now, now + MINUTE)
            failing = asyncio.create_task(rewards.fail(other, lane, {reward: "no"}))
            await until(lambda: is_waiting(world))
        await failing

    assert [row["kind"] for row in await world.rows()] == ["ltz_distributed", "ltz_reverted"]


async def is_waiting(world: World) -> bool:
    return bool(
        await value(
            world.pool,
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()",
        )
    )


async def test_a_requeued_reward_is_announced_and_revoked_again(world: World, brand: Brand) -> None:
    reward = await world.owed(brand)
    for block in (7, 8):
        await world.mint(reward, block=block)
        await claim(world)
        await world.undo(block - 1)
        await world.fail(reward)
        async with session(world.pool) as connection:
            assert await rewards.retry(connection, reward)
    await world.mint(reward, block=9)

    rows = await world.rows()
    assert [row["kind"] for row in rows] == ["ltz_distributed", "ltz_reverted"] * 2 + [
        "ltz_distributed"
    ]
    assert len({row["id"] for row in rows}) == 5
    assert rows[1]["state"] == rows[3]["state"] == "pending", "the first failure is announced too"


# --- bodies -------------------------------------------------------------------------------------


async def a_reversal(world: World, brand: Brand, session_id: str | None = "cs_1") -> UUID:
    async with transaction(world.pool) as connection:
        await connection.execute(
            """
            INSERT INTO payments (session_id, reward_id, brand_id, wallet, usd_cents, ltz,
                                  payment_intent_id)
            VALUES ('cs_1', gen_random_uuid(), $1, $2, 1250, 12500, 'pi_1')
            """,
            brand.address,
            bytes(range(20)),
        )
        reversal: UUID = await connection.fetchval(
            """
            INSERT INTO payment_reversals (provider_id, kind, payment_intent_id, session_id,
                                           usd_cents, reason)
            VALUES ('re_1', 'refund', 'pi_1', $1, 305, 'requested_by_customer')
         RETURNING id
            """,
            session_id,
        )
        await connection.execute(
            "INSERT INTO webhooks (brand_id, kind, subject) VALUES ($1, 'payment_reversed', $2)",
            brand.address,
            reversal,
        )
    return reversal


async def test_a_reversals_webhook_names_the_reversed_payment(world: World, brand: Brand) -> None:
    reversal = await a_reversal(world, brand)
    body = await body_of(world)

    assert body.pop("timestamp") > 1_700_000_000_000
    assert body == {
        "event": "payment_reversed",
        "brandId": brand.id,
        "reversalId": str(reversal),
        "kind": "refund",
        "sessionId": "cs_1",
        "paymentIntentId": "pi_1",
        "walletAddress": checksummed(Address(bytes(range(20)))),
        "usdAmount": 12.5,
        "ltzAmount": 12_500,
        "reversedUsdAmount": 3.05,
        "reason": "requested_by_customer",
    }


async def test_a_webhook_whose_fact_does_not_hold_now_has_no_body(
    world: World, brand: Brand
) -> None:
    await a_reversal(world, brand, session_id=None)
    reward = (await world.minted(brand))[0]
    await world.undo(6)
    dues = await claim(world)
    assert len(dues) == 2
    async with session(world.pool) as connection:
        assert await webhook_bodies.render(connection, dues) == {}

        await world.mint(reward, block=8)
        ready = await webhook_bodies.render(connection, dues)
    assert list(ready) == [due.id for due in dues if due.subject == reward]


# --- claims -------------------------------------------------------------------------------------


async def test_claims_are_bounded_for_each_brand_and_take_the_oldest_webhooks(
    world: World, brand: Brand
) -> None:
    other = await world.brand("/other")
    first = [(await world.minted(brand))[0] for _ in range(3)]
    (second,) = await world.minted(other)

    claimed = await claim(world, 2)

    of_brand = [due.subject for due in claimed if due.brand_id == brand.address]
    assert set(of_brand) == set(first[:2])
    assert [due.subject for due in claimed if due.brand_id == other.address] == [second]
    assert {due.url for due in claimed} == {brand.webhook_url, other.webhook_url}
    assert {due.attempt for due in claimed} == {1}


async def test_a_claimed_webhook_is_not_claimed_again_before_its_lease_expires(
    world: World, brand: Brand
) -> None:
    await world.minted(brand)
    (first,) = await claim(world)
    assert await claim(world, 4, brand) == []
    assert await brands_due(world) == set()

    world.clock.ahead += MINUTE
    (again,) = await claim(world)

    assert again == replace(first, attempt=2)


async def test_a_renewed_lease_ends_later_and_counts_no_attempt(world: World, brand: Brand) -> None:
    await world.minted(brand)
    (due,) = await claim(world)
    before = await world.row()
    later = world.clock.now() + 2 * MINUTE

    await renew(world, later, due)

    assert await world.row() == before | {"next_at": later}


async def test_only_a_webhook_as_it_was_claimed_is_renewed(world: World, brand: Brand) -> None:
    await world.minted(brand, 4)
    dues = settled, failing, claimed_later, replayed = await claim(world)
    world.clock.ahead += MINUTE
    now = world.clock.now()
    await settle(world, delivered(settled, now), failed(failing, now, next_at=now + 5 * MINUTE))
    async with session(world.pool) as connection:
        await webhook_records.replay(connection, [replayed.id])
        await connection.execute("UPDATE webhooks SET attempts = 2 WHERE id = $1", claimed_later.id)
    before = await world.rows()

    await renew(world, now + MINUTE, *dues)

    assert await world.rows() == before


async def test_a_renewal_does_not_wait_for_a_locked_webhook(world: World, brand: Brand) -> None:
    await world.minted(brand, 2)
    locked, free = await claim(world)
    later = world.clock.now() + 2 * MINUTE
    async with transaction(world.pool) as connection:
        await connection.execute("SELECT FROM webhooks WHERE id = $1 FOR UPDATE", locked.id)
        await renew(world, later, locked, free)

    assert {row["id"] for row in await world.rows() if row["next_at"] == later} == {free.id}


async def test_concurrent_senders_claim_different_webhooks(world: World, brand: Brand) -> None:
    await world.minted(brand, 6)
    now = world.clock.now()
    async with transaction(world.pool) as owner, transaction(world.pool) as other:
        first = await webhooks.claim(owner, {brand.address: 4}, now, now + MINUTE)
        second = await webhooks.claim(other, {brand.address: 4}, now, now + MINUTE)

    assert (len(first), len(second)) == (4, 2)
    assert len({due.id for due in first + second}) == 6


async def test_a_deferred_webhook_does_not_count_as_an_attempt(world: World, brand: Brand) -> None:
    await world.minted(brand)
    (due,) = await claim(world)
    later = world.clock.now() + MINUTE
    async with session(world.pool) as connection:
        await webhooks.defer(connection, {due.id: later})

    row = await world.row()
    assert (row["attempts"], row["next_at"], row["state"]) == (0, later, "pending")


async def test_a_brands_long_queue_is_not_scanned_for_another_brands_webhooks(
    world: World, brand: Brand
) -> None:
    async with session(world.pool) as connection:
        await connection.execute(
            """
            INSERT INTO webhooks (brand_id, kind, subject)
            SELECT $1, 'ltz_distributed', gen_random_uuid() FROM generate_series(1, 20000)
            """,
            brand.address,
        )
        await connection.execute("ANALYZE webhooks")
    others = [await world.brand(f"/{number}") for number in range(3)]
    for each in others:
        await world.minted(each)
    before = await rows_read(world)

    assert await brands_due(world) == {owner.address for owner in (brand, *others)}
    assert len(await claim(world, 4)) == 4 + 3

    assert await rows_read(world) - before < 200


async def test_a_queue_that_the_planner_expects_to_be_empty_is_not_read_whole(
    world: World, brand: Brand, database_url: str
) -> None:
    """As after a replay, until autovacuum has counted the rows again, behind a pooler."""
    connection = await connect(database_url, "test")
    await connection.execute(
        """
        INSERT INTO webhooks (brand_id, kind, subject, state)
        SELECT $1, 'ltz_distributed', gen_random_uuid(), 'delivered'
          FROM generate_series(1, 20000)
        """,
        brand.address,
    )
    await connection.execute("ANALYZE webhooks")
    await connection.execute("UPDATE webhooks SET state = 'pending'")
    explained = Explained(connection)

    assert await webhooks.brands_with_due(explained, world.clock.now()) == {brand.address}

    await connection.close()
    assert explained.read < 100


async def rows_read(world: World) -> int:
    """Returns the rows read by scans of webhooks and its indexes on all connections."""
    async with session(world.pool) as connection:
        if connection.get_server_version() < (15,):
            pytest.skip("PostgreSQL 14 cannot be told to count now")
        await connection.execute("SELECT pg_stat_force_next_flush()")
        count: int = await connection.fetchval(
            """
            SELECT (SELECT seq_tup_read + coalesce(idx_tup_fetch, 0)
                      FROM pg_stat_user_tables WHERE relname = 'webhooks')
                 + (SELECT sum(idx_tup_read)
                      FROM pg_stat_user_indexes WHERE relname = 'webhooks')
            """
        )
        return count


@pytest.mark.parametrize("state", ["disabled brand", "no endpoint", "disabled endpoint"])
async def test_a_webhook_without_an_enabled_endpoint_waits(
    world: World, brand: Brand, state: str
) -> None:
    await world.minted(brand)
    if state == "disabled brand":
        async with session(world.pool) as connection:
            await brand_records.switch(connection, brand.address, "disabled", on=True)
    elif state == "no endpoint":
        await world.apply(brand.model_copy(update={"webhook_url": None}))
    else:
        await disable(world, brand)

    assert await claim(world) == []
    assert (await world.row())["attempts"] == 0


async def disable(world: World, brand: Brand) -> None:
    at = world.clock.now()
    due = DueWebhook(
        uuid4(), brand.address, str(brand.webhook_url), 1, "ltz_distributed", uuid4(), 1, at
    )
    closing = failed(due, at, disable_reason="it answered 410")
    assert await settle(world, closing) == [closing]


async def test_a_changed_url_enables_the_endpoint_again(world: World, brand: Brand) -> None:
    await world.minted(brand)
    await disable(world, brand)
    elsewhere = world.receiver.url("/elsewhere")
    await world.apply(brand.model_copy(update={"webhook_url": elsewhere}))

    assert [due.url for due in await claim(world)] == [elsewhere]


# --- outcomes -----------------------------------------------------------------------------------


async def test_outcomes_are_written_together(world: World, brand: Brand) -> None:
    await world.minted(brand, 3)
    first, second, third = await claim(world)
    at = world.clock.now()
    later = at + MINUTE
    given_up = failed(third, at, state="exhausted", status=None, error="no answer in time")
    await settle(world, delivered(first, at), failed(second, at, next_at=later), given_up)

    rows = {row["id"]: row for row in await world.rows()}
    shown = [
        (row["state"], row["last_status"], row["last_error"], row["delivered_at"])
        for row in (rows[due.id] for due in (first, second, third))
    ]
    assert shown == [
        ("delivered", 204, None, at),
        ("pending", 500, "status 500", None),
        ("exhausted", None, "no answer in time", None),
    ]
    assert rows[second.id]["next_at"] == later


async def test_a_late_failure_changes_nothing_and_a_late_delivery_counts(
    world: World, brand: Brand
) -> None:
    await world.minted(brand)
    (first,) = await claim(world)
    world.clock.ahead += MINUTE
    await claim(world)
    leased = await world.row()

    await settle(world, failed(first, world.clock.now(), state="exhausted"))
    assert await world.row() == leased

    await settle(world, delivered(first, world.clock.now()))
    assert await world.states() == ["delivered"]

    await settle(world, failed(replace(first, attempt=2), world.clock.now()))
    assert await world.states() == ["delivered"]


async def test_an_endpoint_is_disabled_once_and_only_if_nothing_arrived_meanwhile(
    world: World, brand: Brand
) -> None:
    await world.minted(brand, 2)
    owner, other = await claim(world)
    at = world.clock.now()
    closing = failed(
        owner, at, disable_reason="nothing arrived", unless_succeeded_since=owner.created_at
    )

    assert await settle(world, delivered(other, at), closing) == []

    after_that = replace(closing, unless_succeeded_since=at + MINUTE)
    assert await settle(world, after_that) == [after_that]
    assert await settle(world, after_that) == []
    async with session(world.pool) as connection:
        (shown,) = await webhook_records.disabled_endpoints(connection, None)
    assert (shown.brand_id, shown.disabled_at, shown.reason) == (
        brand.address,
        at,
        "nothing arrived",
    )


async def test_410_disables_whatever_arrived_before(world: World, brand: Brand) -> None:
    await world.minted(brand, 2)
    owner, other = await claim(world)
    at = world.clock.now()
    closing = failed(owner, at, disable_reason="it answered 410")

    assert await settle(world, delivered(other, at), closing) == [closing]


# --- retention ----------------------------------------------------------------------------------


async def test_old_webhooks_are_deleted_and_delivered_ones_sooner(
    world: World, brand: Brand
) -> None:
    kept = {("delivered", 29), ("pending", 31), ("exhausted", 89)}
    gone = {("delivered", 31), ("pending", 91), ("exhausted", 91), ("delivered", 91)}
    async with session(world.pool) as connection:
        for state, days in kept | gone:
            await connection.execute(
                """
                INSERT INTO webhooks (brand_id, kind, subject, state, created_at)
                VALUES ($1, 'ltz_distributed', gen_random_uuid(), $2, now() - $3 * interval '1 day')
                """,
                brand.address,
                state,
                days,
            )
        await webhooks.delete_expired(connection)
        await webhooks.delete_expired(connection)
    now = datetime.now(UTC)
    left = {(row["state"], (now - row["created_at"]).days) for row in await world.rows()}
    assert left == kept


async def test_the_backlog_has_the_number_and_age_of_waiting_webhooks(
    world: World, brand: Brand
) -> None:
    async def facts() -> WebhookFacts:
        async with session(world.pool) as connection:
            return await webhook_records.backlog(connection)

    assert await facts() == WebhookFacts(0, None, 0, 0, 0)
    closed, gone = await world.brand("/closed"), await world.brand("/gone")
    for owner in (brand, brand, closed, gone):
        await world.minted(owner)
    await value(world.pool, "UPDATE webhooks SET created_at = now() - interval '1 hour'")
    await value(
        world.pool,
        "UPDATE webhooks SET next_at = now() - interval '1 minute' WHERE brand_id = $1",
        brand.address,
    )
    await disable(world, closed)
    await world.apply(gone.model_copy(update={"webhook_url": None}))

    backlog = await facts()

    assert (backlog.pending, backlog.held, backlog.disabled_endpoints) == (2, 2, 1)
    assert backlog.oldest_seconds == pytest.approx(3600, abs=30)
    assert backlog.overdue_seconds == pytest.approx(60, abs=30)

    await claim(world, 4, brand)
    leased = await facts()
    assert (leased.pending, leased.overdue_seconds) == (2, 0), "no webhook can be sent now"

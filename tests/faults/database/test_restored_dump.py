"""A database is restored from a dump that lacks the last commits: nothing is minted twice."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from ltzd.rules.payments.sessions import NO_BRAND, Payment
from ltzd.store import payments
from ltzd.store.database import open_pool, session, transaction
from ltzd.store.operator import rewards
from ltzd.store.payments import PaymentOutcome, reward_id
from ltzd.store.schema_revisions import migrate
from ltzd.store.wakeups import REWARDS
from ltzd.values import Hash32
from tests.support.chain.fake_node import FakeNode
from tests.support.chain.mint_world import World, stop_of
from tests.support.rows.core import a_wallet, running, value
from tests.support.services.dumps import dump, restored
from tests.support.waiting import until


@pytest.fixture
def node() -> FakeNode:
    node = FakeNode()
    node.mine()
    node.final_depth = 3
    node.mines_at_once = True
    return node


@asynccontextmanager
async def a_world(url: str, node: FakeNode) -> AsyncIterator[World]:
    pool = await open_pool(url)
    world = World(url, pool, pool, node)
    async with running((await world.follow()).run()):
        yield world
    pool.terminate()


async def reward_ids(world: World) -> set[UUID]:
    async with session(world.observer) as connection:
        return {row["id"] for row in await connection.fetch("SELECT id FROM rewards")}


async def test_a_restored_dump_mints_what_it_knows_once_and_what_it_lost_never_again(
    database_url: str, node: FakeNode, tmp_path: Path
) -> None:
    """The dump is taken while rewards wait; it is restored beside the server's other databases."""
    file = tmp_path / "ltzd.dump"
    async with a_world(database_url, node) as world:
        await world.queue(5)
        async with world.serving():
            await world.minted()
        await world.queue(4)
        await dump(database_url, file)
        known = await reward_ids(world)
        lost = set(await world.queue(3))
        async with world.serving():
            await world.minted()

    async with restored(database_url, file, "restored_dump") as url:
        await migrate(url)
        async with a_world(url, node) as copy:
            assert await reward_ids(copy) == known
            async with copy.lane() as lane:
                await stop_of(lane)
                await copy.restore()
            known |= set(await copy.queue(2))
            async with copy.lane():
                await copy.minted()
                node.mine(6)
                await until(lambda: is_settled(copy))

    minted = Counter(UUID(bytes=each[:16]) for each in node.minted().elements())
    assert minted == Counter(known | lost)


async def is_settled(world: World) -> bool:
    return bool(
        await value(
            world.observer,
            "SELECT NOT EXISTS (SELECT FROM transactions WHERE state <> 'confirmed')",
        )
    )


async def test_a_payment_whose_rows_are_lost_is_not_minted_again_when_it_is_reported_again(
    database_url: str, node: FakeNode, tmp_path: Path
) -> None:
    """The buyer's page repeats `payment-mint`, and the provider can send its events again."""
    file = tmp_path / "ltzd.dump"
    payment = Payment("cs_lost", NO_BRAND, a_wallet(7), 500, "pi_lost")
    async with a_world(database_url, node) as world:
        await world.queue(1)
        async with world.serving():
            await world.minted()
        await dump(database_url, file)
        assert await pay(world, payment) is PaymentOutcome.NEW
        async with world.serving():
            await world.minted()
        hash_ = (await published(world, payment))[reward_id("cs_lost")]

    async with restored(database_url, file, "restored_dump") as url:
        await migrate(url)
        async with a_world(url, node) as copy:
            async with copy.lane() as lane:
                await stop_of(lane)
                await copy.restore()
            assert await pay(copy, payment) is PaymentOutcome.FOUND_MINTED
            assert await published(copy, payment) == {reward_id("cs_lost"): hash_}
            assert await pay(copy, payment) is PaymentOutcome.KNOWN
            other = replace(payment, session_id="cs_new", payment_intent_id="pi_new")
            assert await pay(copy, other) is PaymentOutcome.NEW
            async with copy.lane():
                await copy.minted()
                node.mine(6)
                await until(lambda: is_settled(copy))

    minted = Counter(UUID(bytes=each[:16]) for each in node.minted().elements())
    assert minted[reward_id("cs_lost")] == minted[reward_id("cs_new")] == 1


async def pay(world: World, payment: Payment) -> PaymentOutcome:
    async with transaction(world.observer) as connection:
        await payments.lock_intent(connection, payment.payment_intent_id)
        recorded = await payments.record(connection, payment)
    world.wakeups.notify(REWARDS)
    return recorded.outcome


async def published(world: World, payment: Payment) -> dict[UUID, Hash32]:
    async with session(world.observer) as connection:
        return await rewards.published_hashes(connection, [reward_id(payment.session_id)])

"""Neither the size nor the number of one brand's rewards delays another brand's for long."""

from uuid import UUID, uuid4

import pytest

from ltzd.store.database import session, transaction
from ltzd.store.wakeups import REWARDS
from ltzd.values import LTZ, Address
from tests.support.chain.mint_world import POLICY, World
from tests.support.rows.core import a_wallet, queue_reward, value
from tests.support.waiting import until

A, B, C = (Address(bytes([byte]) * 20) for byte in (0xA, 0xB, 0xC))
MANY = 4_000
MAINNET_BLOCK_GAS = 30_000_000


async def queue(
    world: World, brand: Address, count: int = 1, ltz: int = 100, kind: int = 1
) -> UUID:
    """Returns the last reward's id."""
    last = uuid4()
    async with transaction(world.observer) as connection:
        await connection.execute(
            """
            INSERT INTO rewards (id, kind, brand_id, wallet, ltz)
            SELECT CASE n WHEN $1 THEN $2 ELSE gen_random_uuid() END, $3, $4, $5, $6
              FROM generate_series(1, $1) AS each (n)
             ORDER BY n
            """,
            count,
            last,
            kind,
            brand,
            a_wallet(7),
            ltz,
        )
    world.wakeups.notify(REWARDS)
    return last


async def is_minted(world: World, reward: UUID) -> bool:
    return bool(
        await value(
            world.observer, "SELECT mint_block_hash IS NOT NULL FROM rewards WHERE id = $1", reward
        )
    )


async def blocks_until_minted(world: World, reward: UUID, most: int = 12) -> int:
    """Returns the blocks until this reward is minted; mines each when the lane is idle."""
    for number in range(1, most + 1):
        await world.some_polls()
        world.node.mine()
        head = world.node.head.number

        async def is_indexed(number: int = head) -> bool:
            return bool(
                await value(world.observer, "SELECT cursor_number >= $1 FROM chains", number)
            )

        await until(is_indexed)
        if await is_minted(world, reward):
            return number
    raise AssertionError(f"not minted after {most} blocks")


# --- turns ------------------------------------------------------------------------------------


async def test_more_brands_than_a_mint_holds_take_turns_from_mint_to_mint(world: World) -> None:
    brands = 120
    async with transaction(world.observer) as connection:
        await connection.execute(
            """
            INSERT INTO rewards (id, kind, brand_id, wallet, ltz)
            SELECT gen_random_uuid(), 1, decode(lpad(to_hex(brand), 40, '0'), 'hex'), $2, 1
              FROM generate_series(1, 2) AS turn, generate_series(1, $1::int) AS brand
             ORDER BY turn, brand
            """,
            brands,
            a_wallet(7),
        )
    world.node.mines_at_once = True
    async with world.serving():
        await world.minted()
    in_two_mints = """
        SELECT count(DISTINCT brand_id)
          FROM rewards
         WHERE transaction_id IN (SELECT id FROM transactions ORDER BY nonce LIMIT 2)
    """
    assert await value(world.observer, in_two_mints) == brands


# --- reward size --------------------------------------------------------------------------------


async def test_two_rewards_as_large_as_the_mint_limit_stop_no_other_brand(world: World) -> None:
    """The first rewards fit the limit's capacity, but not the bucket's content, so they wait."""
    world.node.mint_capacity = 1_000 * LTZ
    world.node.mint_filled = 400 * LTZ
    world.node.mint_window_seconds = 10
    world.node.mines_at_once = True
    forged = [await queue(world, A, ltz=1_000) for _ in range(2)]
    others = [await queue(world, B), await queue(world, B, kind=2), await queue(world, C)]
    async with world.serving():
        for reward in others:
            await until(lambda reward=reward: is_minted(world, reward))  # type: ignore[misc]

        for _ in range(40):  # The large rewards are minted too, though B's queue is never empty.
            await queue(world, B, count=4, ltz=10)
            world.node.mint_filled = min(
                world.node.mint_filled + 100 * LTZ, world.node.head.minted + 1_000 * LTZ
            )
            world.node.mine()
            await world.some_polls()
            if await is_minted(world, forged[1]):
                break
        assert await is_minted(world, forged[1])
        world.node.mint_filled = 10**30
        world.node.mine()
        await world.minted()
    assert await value(
        world.observer, "SELECT bool_and(coalesce(succeeded, true)) FROM transactions"
    )
    await world.each_minted_once()


async def test_rewards_above_a_lowered_limit_wait_and_later_rewards_are_minted(
    world: World,
) -> None:
    forged = await queue(world, A, count=350, ltz=5_000)
    own, other = await queue(world, A), await queue(world, B)
    world.node.mint_capacity = world.node.mint_filled = 1_000 * LTZ
    world.node.mines_at_once = True
    async with world.serving():
        await until(lambda: is_minted(world, other))
        await until(lambda: is_minted(world, own), 60.0)
        waiting = "SELECT count(*) FROM rewards WHERE above_limit AND mint_block_hash IS NULL"

        async def all_forged_wait() -> bool:
            return bool(await value(world.observer, waiting) == 350)

        # The lane takes the last ones out of the queue after the mint that it found them beside.
        await until(all_forged_wait)

    async with world.serving():  # A new term skips them too.
        await until(lambda: is_minted(world, other))
        world.node.mint_capacity = world.node.mint_filled = 10**30
        world.node.mine()
        await until(lambda: is_minted(world, forged), 60.0)
        await world.minted()
        assert await value(world.observer, waiting) == 0


async def test_while_minting_is_switched_off_no_reward_leaves_the_queue(world: World) -> None:
    await queue(world, A, count=3)
    world.node.mint_capacity = 0
    async with world.serving():
        await world.some_polls()
        assert await value(world.observer, "SELECT count(*) FROM rewards WHERE above_limit") == 0
        world.node.mint_capacity = 10**30
        world.node.mines_at_once = True
        world.node.mine()
        await world.minted()


# --- queue length -------------------------------------------------------------------------------


async def test_a_brand_with_thousands_of_rewards_delays_another_brand_by_at_most_two_blocks(
    world: World,
) -> None:
    """Alone, B's reward would be in the next block. The worst case is the transactions that are in
    flight before it: they are mined first."""
    world.node.block_gas_limit = MAINNET_BLOCK_GAS
    world.node.mine()
    async with world.serving():
        await queue(world, A, count=MANY)
        await world.some_polls()
        paid = await queue(world, Address(bytes(20)), kind=2)
        other = await queue(world, B)

        assert await blocks_until_minted(world, other) <= 3
        assert await is_minted(world, paid), "it was queued before B's reward"
        assert await world.unminted() > 1_000, "A's rewards were minted too soon to be a backlog"


@pytest.mark.parametrize("recovery", ["a raised limit", "a new term"])
async def test_after_an_outage_a_single_reward_is_minted_at_once_beside_thousands_of_another_brand(
    world: World, recovery: str
) -> None:
    world.node.block_gas_limit = MAINNET_BLOCK_GAS
    if recovery == "a raised limit":
        world.node.mint_filled = 0
    world.node.mine()
    await queue(world, A, count=MANY)
    others: list[UUID] = []
    async with world.serving():
        await world.some_polls()
        if recovery == "a raised limit":
            others = [await queue(world, B), await queue(world, C)]
            world.node.mint_filled = 10**30
            assert await blocks_until_minted(world, others[0]) <= 3
    if recovery == "a new term":
        # Queued between the terms: the first one could sign one of them before the other.
        others = [await queue(world, B), await queue(world, C)]
        async with world.serving():
            assert await blocks_until_minted(world, others[0]) <= 3
    assert await is_minted(world, others[1])


async def test_two_brands_with_thousands_have_equal_shares_of_every_batch(world: World) -> None:
    await queue(world, A, count=MANY)
    await queue(world, B, count=MANY)
    async with world.serving(POLICY):
        await world.some_polls()
    async with session(world.observer) as connection:
        rows = await connection.fetch(
            """
            SELECT count(*) FILTER (WHERE brand_id = $1) AS a,
                   count(*) FILTER (WHERE brand_id = $2) AS b
              FROM rewards
             WHERE transaction_id IS NOT NULL
             GROUP BY transaction_id
            """,
            A,
            B,
        )
    assert {(row["a"], row["b"]) for row in rows} == {(50, 50)}


async def test_transactions_in_flight_never_fill_more_than_two_blocks(world: World) -> None:
    world.node.block_gas_limit = MAINNET_BLOCK_GAS
    world.node.mine()
    await queue(world, A, count=MANY)
    async with world.serving():
        await world.some_polls()
        in_flight = "SELECT sum(gas_limit) FROM transactions WHERE state IN ('signed', 'published')"
        assert 0 < await value(world.observer, in_flight) <= 2 * MAINNET_BLOCK_GAS

        for _ in range(8):
            world.node.mine()
            await world.some_polls()
        assert await world.unminted() == 0, "a block was not full"


async def test_a_batch_of_rewards_that_ltz_refuses_stops_no_other_brand(world: World) -> None:
    world.node.bad_wallets.add(a_wallet(7))
    world.node.mines_at_once = True
    await queue(world, A, count=150)
    async with world.serving():
        await world.some_polls()
        world.node.mine(4)  # The reverts are final, and the rewards are queued again.
        await world.some_polls()
        async with transaction(world.observer) as connection:
            other = await queue_reward(connection, a_wallet(8), brand=B)
        world.wakeups.notify(REWARDS)

        await until(lambda: is_minted(world, other), 60.0)
        assert not await is_minted(world, await first_of(world, A))


async def first_of(world: World, brand: Address) -> UUID:
    first: UUID = await value(
        world.observer,
        "SELECT id FROM rewards WHERE brand_id = $1 ORDER BY position LIMIT 1",
        brand,
    )
    return first

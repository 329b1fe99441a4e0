"""Fluctuating fees, and a balance that a mint has just reduced."""

import itertools

from ltzd.chain.contracts import ltz
from ltzd.rules.operator.fees import GWEI
from tests.support.chain.mint_world import POLICY, World
from tests.support.rows.core import value
from tests.support.waiting import until


async def attempts(world: World) -> int:
    count: int = await value(world.observer, "SELECT count(*) FROM attempts")
    return count


async def test_a_refused_mint_is_replaced_while_fees_fluctuate(world: World) -> None:
    world.node.base_fee = 10 * GWEI
    world.node.mine()
    async with world.serving(POLICY):
        await world.some_polls()
        world.node.refusal = "transaction underpriced"
        await world.queue()

        async def signed() -> bool:
            return await attempts(world) >= 1

        await until(signed)
        turns = itertools.count()

        async def replaced_after_a_block() -> bool:
            """Each call, every few milliseconds, mines a block with another base fee."""
            world.node.base_fee = (10 - next(turns) % 2) * GWEI
            world.node.mine()
            return await attempts(world) > 1

        await until(replaced_after_a_block)


async def test_nothing_is_signed_against_a_balance_read_before_the_last_mint_was_mined(
    world: World,
) -> None:
    world.node.base_fee = 10 * GWEI
    world.node.mine()
    fee = 2 * 10 * GWEI + world.node.tip
    worst = ltz.mint_gas_limit(ltz.MAX_BATCH) * fee
    world.node.balance = worst + ltz.mint_gas_limit(1) * fee - 1
    async with world.serving(POLICY):
        await world.some_polls()
        await world.queue()
        await world.settled("published")
        await world.queue()
        await world.some_polls()
        assert len({sent.nonce for sent in world.node.sent()}) == 1
        world.node.balance = worst - 1  # The mint's cost is gone.
        world.node.mine()
        await world.some_polls()
        nonces = {sent.nonce for sent in world.node.sent()}
        assert len(nonces) == 1, nonces

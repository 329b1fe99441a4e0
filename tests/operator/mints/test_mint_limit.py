"""The mint limit, when a lane mints fewer rewards than the limit allows."""

from uuid import UUID

from ltzd.chain.node.view import ChainView
from ltzd.operator.mints.limit import MintLimitTracker
from ltzd.operator.policy import MintTarget
from ltzd.store.operator.rewards import QueuedReward
from ltzd.values import LTZ, Address
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode

A, B = (Address(bytes([number]) * 20) for number in (0xA, 0xB))


async def a_view(left: int) -> ChainView:
    """Returns a block with a mint limit of 1,000 LTZ a day; `left` is the remainder in LTZ."""
    node = FakeNode()
    node.mint_capacity, node.mint_filled = 1_000 * LTZ, left * LTZ
    return await ChainView.newest(node.node)


def a_reward(number: int, brand: Address, ltz: int) -> QueuedReward:
    return QueuedReward(UUID(int=number), 1, brand, ltz, None, brand_id=brand)


async def test_the_limit_of_rewards_left_out_of_a_mint_is_not_reserved_for_a_large_reward() -> None:
    """Batches are small after a refused mint; otherwise nine tenths of each would be reserved."""
    target = MintTarget(CHAIN_ID, LTZ_AT)
    mint_limit = MintLimitTracker(target, B)
    left = 1_000
    large = a_reward(0, A, 1_000)
    small = [a_reward(number, B, 1) for number in range(1, 5_000)]
    for _ in range(20):
        await mint_limit.refresh(await a_view(left))
        waiting = [small[0], large, *small[1:99]]
        selected = mint_limit.select(waiting, 0)
        batch, left_out = selected[:10], selected[10:]
        mint_limit.give_back(left_out)
        assert large not in batch
        left -= len(batch)
        small = [reward for reward in small if reward not in batch]
    assert left == 800

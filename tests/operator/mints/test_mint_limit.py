"""The mint limit, when a lane mints fewer rewards than the limit allows."""

from typing import cast
from uuid import UUID

from ltzd.chain.node.view import ChainView
from ltzd.operator.mints.limit import MintLimitTracker
from ltzd.operator.policy import MintTarget
from ltzd.store.operator.rewards import QueuedReward
from ltzd.values import LTZ, Address

A, B = (Address(bytes([number]) * 20) for number in (0xA, 0xB))


class LimitedView:
    """A block with a mint limit of 1,000 LTZ a day; `left` is the remainder in LTZ."""

    def __init__(self, left: int) -> None:
        self.left = left

    async def view(self, _to: Address, _data: bytes, _at: object = None) -> bytes:
        return b"".join(
            number.to_bytes(32, "big") for number in (1_000 * LTZ, 86_400, self.left * LTZ)
        )


def a_reward(number: int, brand: Address, ltz: int) -> QueuedReward:
    return QueuedReward(UUID(int=number), 1, brand, ltz, None, brand_id=brand)


async def test_the_limit_of_rewards_left_out_of_a_mint_is_not_reserved_for_a_large_reward() -> None:
    """Batches are small after a refused mint; otherwise nine tenths of each would be reserved."""
    target = MintTarget(31337, B)
    mint_limit = MintLimitTracker(target, B)
    left = 1_000
    large = a_reward(0, A, 1_000)
    small = [a_reward(number, B, 1) for number in range(1, 5_000)]
    for _ in range(20):
        await mint_limit.refresh(cast("ChainView", LimitedView(left)))
        waiting = [small[0], large, *small[1:99]]
        selected = mint_limit.select(waiting, 0)
        batch, left_out = selected[:10], selected[10:]
        mint_limit.give_back(left_out)
        assert large not in batch
        left -= len(batch)
        small = [reward for reward in small if reward not in batch]
    assert left == 800

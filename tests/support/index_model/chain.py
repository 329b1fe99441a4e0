"""A fake node whose blocks hold random logs of all contracts, and the state after each block."""

import random
from collections.abc import Sequence
from uuid import UUID

from ltzd.values import Hash32
from tests.support.chain.fake_node import FakeNode
from tests.support.index_model.state import WALLETS, ModelState, Reward

REWARDS = tuple(
    Reward(UUID(int=number + 1), number, WALLETS[number % len(WALLETS)], 100 + number)
    for number in range(12)
)


class ModelChain:
    """`states` holds the state after every block that was ever canonical, by its hash."""

    def __init__(self, node: FakeNode, seed: int, rewards: Sequence[Reward] = REWARDS) -> None:
        self.node = node
        self._chance = random.Random(seed)
        self.states: dict[Hash32, ModelState] = {
            block.hash: ModelState(rewards) for block in node.blocks
        }

    def mine(self, blocks: int = 1, most_operations: int = 6) -> None:
        """Mines blocks, each with up to `most_operations` operations; some blocks are empty."""
        for _ in range(blocks):
            state = self.states[self.node.head.hash].copy()
            count = self._chance.randint(0, most_operations)
            logs = state.random_logs(self._chance, self.node.head.number + 1, count)
            self.states[self.node.mine(logs=logs).hash] = state

    def reorg(self, depth: int, longer_by: int = 1) -> None:
        """Replaces the newest blocks by blocks with other logs."""
        self.node.forget_blocks(depth)
        self.mine(depth + longer_by)

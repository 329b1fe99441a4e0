"""What LTZ's mint limit lets this lane mint now, so that no batch reverts for asking too much.

The limit is a token bucket on chain (contracts.md). Amounts are LTZ's smallest unit.
"""

from collections.abc import Sequence
from uuid import UUID

import structlog

from ltzd.chain import ltz
from ltzd.chain.node import Node
from ltzd.chain.rpc import RpcError
from ltzd.errors import NodeUnavailable
from ltzd.operator.policy import MintTarget
from ltzd.store.rewards import QueuedReward
from ltzd.values import LTZ, Address

log = structlog.get_logger()


class MintAllowance:
    def __init__(self, node: Node, target: MintTarget, minter: Address) -> None:
        self._node = node
        self._target = target
        self._minter = minter
        self._capacity = 0
        self._available = 0
        self.hopeless: set[UUID] = set()
        """Rewards above the bucket's whole capacity: they wait until the limit is raised."""

    async def look(self) -> None:
        """Ask the chain. Raises NodeUnavailable."""
        try:
            answer = await self._node.view(self._target.ltz, ltz.mint_limit_call(self._minter))
            capacity, self._available = ltz.decode_mint_limit(answer)
        except (RpcError, ValueError) as error:
            raise NodeUnavailable(f"mintLimit: {error}") from error
        if capacity > self._capacity:
            self.hopeless.clear()
        self._capacity = capacity

    def fit(self, batch: Sequence[QueuedReward], in_flight: int) -> list[QueuedReward]:
        """The rewards from the batch's beginning that the bucket holds beside `in_flight` units."""
        if self._capacity == 0:
            return []  # minting is switched off: everybody waits, nobody is hopeless
        left = self._available - in_flight
        fitting: list[QueuedReward] = []
        for reward in batch:
            units = reward.ltz * LTZ
            if units > min(self._capacity, ltz.MAX_UNITS):
                self._give_up(reward)
            elif units > left:
                break
            else:
                left -= units
                fitting.append(reward)
        return fitting

    def _give_up(self, reward: QueuedReward) -> None:
        self.hopeless.add(reward.id)
        log.error("reward.above_mint_limit", reward=str(reward.id), ltz=reward.ltz)

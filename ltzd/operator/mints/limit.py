"""What LTZ's mint limit lets this lane mint now, so that no batch reverts for asking too much.

The limit is a token bucket on chain (contracts.md); `rules/operator/mint_turns.py` says who gets
what of it. Amounts are LTZ's smallest unit.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import structlog

from ltzd.chain.contracts import ltz
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable
from ltzd.operator.policy import MintTarget
from ltzd.rules.operator.mint_turns import Bucket, MintRequest, Reserve, allot
from ltzd.store.database import Connection
from ltzd.store.operator import rewards
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.rewards import QueuedReward
from ltzd.values import LTZ, Address

log = structlog.get_logger()

_PUT_BACK_AT_ONCE = 1_000


class MintLimitTracker:
    """`saver` is the reward that the bucket is being filled for, if there is one."""

    def __init__(
        self, node: Node, target: MintTarget, minter: Address, clock: Clock = loop_time
    ) -> None:
        self._node = node
        self._target = target
        self._minter = minter
        self._clock = clock
        self._capacity = 0
        self._available = 0
        self._window_seconds = 0
        self._has_risen = False
        self._saved_at = self._clock()
        self._reserve = Reserve()
        self._over_capacity: tuple[UUID, ...] = ()

    @property
    def saver(self) -> UUID | None:
        return self._reserve.saver

    async def look(self) -> None:
        """Ask the chain. Raises NodeUnavailable."""
        try:
            answer = await self._node.view(self._target.ltz, ltz.mint_limit_call(self._minter))
            capacity, self._window_seconds, self._available = ltz.decode_mint_limit(answer)
        except (RpcError, ValueError) as error:
            raise NodeUnavailable(f"mintLimit: {error}") from error
        self._has_risen |= capacity > self._capacity
        self._capacity = capacity

    def fit(
        self, waiting: Sequence[QueuedReward], in_flight: int, at_most: int = ltz.MAX_BATCH
    ) -> list[QueuedReward]:
        """The rewards of one mint: the bucket holds them beside `in_flight` units.

        What of them is not minted after all is to be given back (`give_back`).
        """
        if self._capacity == 0:
            return []  # minting is switched off: every reward waits, and stays in the queue
        asks = [
            MintRequest(reward.id, None if reward.is_payment else reward.brand_id, reward.ltz * LTZ)
            for reward in waiting
        ]
        bucket = Bucket(
            capacity=min(self._capacity, ltz.MAX_UNITS),
            spendable=self._available - in_flight,
            refill=self._refill(),
        )
        allotment = allot(asks, bucket, self._reserve, at_most)
        self._reserve, self._over_capacity = allotment.reserve, allotment.over_capacity
        by_id = {reward.id: reward for reward in waiting}
        return [by_id[id_] for id_ in allotment.taken]

    def give_back(self, left_out: Sequence[QueuedReward]) -> None:
        """These are not minted now: else the next round takes what they leave for a refill, and
        keeps half of it for the reward that is saved for."""
        units = sum(reward.ltz for reward in left_out) * LTZ
        self._reserve = replace(self._reserve, free=self._reserve.free + units)

    def _refill(self) -> int:
        """Since this was asked last."""
        now = self._clock()
        seconds, self._saved_at = now - self._saved_at, now
        return self._capacity * int(seconds * 1_000) // max(1, self._window_seconds * 1_000)

    async def sort_out(self, connection: Connection, lane: Lane) -> bool:
        """Take rewards above the capacity out of the queue, and put back those no longer above it.

        Answers whether the queue has changed.
        """
        over_capacity, self._over_capacity = self._over_capacity, ()
        taken_out: list[UUID] = []
        if over_capacity:
            taken_out = await rewards.set_above_limit(connection, lane, over_capacity)
        for reward in taken_out:
            log.error("reward.above_mint_limit", reward=str(reward))
        return bool(taken_out) or await self._put_back(connection, lane)

    async def _put_back(self, connection: Connection, lane: Lane) -> bool:
        """Those that a raised limit holds, so many at a time."""
        if not self._has_risen:
            return False
        most = min(self._capacity, ltz.MAX_UNITS) // LTZ
        put_back = await rewards.set_within_limit(connection, lane, most, _PUT_BACK_AT_ONCE)
        self._has_risen = put_back == _PUT_BACK_AT_ONCE
        if put_back:
            log.info("rewards.within_mint_limit", rewards=put_back)
        return put_back > 0

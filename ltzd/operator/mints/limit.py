"""Tracks how much LTZ's mint limit lets this lane mint now, so that no batch exceeds the limit.

The limit is a token bucket on chain (docs/contracts.md), one for each wallet.
`rules/operator/mint_allocation.py` decides how rewards share it. A reward above this wallet's
capacity is left to a lane whose wallet can hold it, if there is one. A limit that leaves rewards
waiting is compared with other nodes' (`chain/node/second_opinions.py`). Amounts are in LTZ's
smallest unit.
"""

import math
from collections.abc import Sequence
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import replace

from ltzd.chain.contracts import ltz
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.second_opinions import compare_views
from ltzd.chain.node.view import ChainView
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable
from ltzd.operator.policy import MintTarget
from ltzd.rules.operator.mint_allocation import MintBucket, MintRequest, MintReserve, allocate
from ltzd.store.database import Connection
from ltzd.store.operator import lanes, rewards
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.rewards import QueuedReward
from ltzd.values import LTZ, Address

log = structlog.get_logger()

_PUT_BACK_AT_ONCE = 1_000
_PUT_BACK_SECONDS = 10.0
"""The pause between two searches for rewards that other lanes found too large, and this lane does
not."""
MINT_LIMITS_DIFFER = "mint_limit"
"""Nodes show different mint limits of a wallet after the same block."""


class _Limit(msgspec.Struct, frozen=True):
    capacity: int
    window_seconds: int
    available: int


class MintLimitTracker:
    def __init__(self, target: MintTarget, minter: Address, clock: Clock = loop_time) -> None:
        self._target = target
        self._minter = minter
        self._clock = clock
        self._view: ChainView | None = None
        self._capacity = 0
        self._available = 0
        self._window_seconds = 0
        self._put_back_at = -math.inf
        self._refilled_at = self._clock()
        self._reserve = MintReserve()
        self._over_capacity: list[QueuedReward] = []
        self._leaves_waiting = False
        """Whether the limit kept rewards of the last selection waiting."""
        self._is_confirmed = False
        """False while only one of several nodes has shown the limit."""

    @property
    def saving_for(self) -> UUID | None:
        """The large reward for which a share of the bucket is reserved, if there is one."""
        return self._reserve.saving_for

    async def refresh(self, view: ChainView) -> None:
        """Read the limit as of a view, once for each view. Raises NodeUnavailable."""
        if view is self._view:
            return
        limit, is_confirmed = await self._read(view), view.node.is_alone
        if self._leaves_waiting:
            # A node that is behind does not know of the newest mints.
            compared = await compare_views(
                view, limit, self._read, _leniency, MINT_LIMITS_DIFFER, view.head.number
            )
            limit, is_confirmed = compared.answer, compared.is_confirmed
        if limit.capacity > self._capacity:
            self._put_back_at = -math.inf
        self._capacity, self._available = limit.capacity, limit.available
        self._window_seconds = limit.window_seconds
        self._is_confirmed = is_confirmed
        self._view = view

    async def _read(self, view: ChainView) -> _Limit:
        """Raises NodeUnavailable."""
        try:
            answer = await view.view(self._target.ltz, ltz.mint_limit_call(self._minter))
            return _Limit(*ltz.decode_mint_limit(answer))
        except RpcError as error:
            raise NodeUnavailable(f"mintLimit: {error}") from error
        except ValueError as error:
            raise NodeUnavailable(f"mintLimit: {error}", kind="malformed") from error

    def select(
        self, waiting: Sequence[QueuedReward], in_flight: int, at_most: int = ltz.MAX_BATCH
    ) -> list[QueuedReward]:
        """The rewards of one mint that the bucket covers beside `in_flight` units.

        The caller passes rewards that it does not mint after all to `give_back`.
        """
        if self._capacity == 0:
            self._leaves_waiting = bool(waiting)
            return []  # Minting is switched off: every reward waits, and stays in the queue.
        requests = [
            MintRequest(reward.id, None if reward.is_payment else reward.brand_id, reward.ltz * LTZ)
            for reward in waiting
        ]
        bucket = MintBucket(
            capacity=min(self._capacity, ltz.MAX_UNITS),
            spendable=self._available - in_flight,
            refill=self._refill(),
        )
        allocation = allocate(requests, bucket, self._reserve, at_most)
        by_id = {reward.id: reward for reward in waiting}
        self._leaves_waiting = len(allocation.selected) < min(len(waiting), at_most)
        self._reserve = allocation.reserve
        self._over_capacity = [by_id[id_] for id_ in allocation.over_capacity]
        return [by_id[id_] for id_ in allocation.selected]

    def give_back(self, not_minted: Sequence[QueuedReward]) -> None:
        """Return the units of selected rewards that are not minted now.

        The next round would otherwise take these units for a refill, and keep half of them for the
        reward that it saves for.
        """
        units = sum(reward.ltz for reward in not_minted) * LTZ
        self._reserve = replace(self._reserve, free=self._reserve.free + units)

    def _refill(self) -> int:
        """The units that the bucket refills in the time since the last call."""
        now = self._clock()
        seconds, self._refilled_at = now - self._refilled_at, now
        return self._capacity * int(seconds * 1_000) // max(1, self._window_seconds * 1_000)

    async def update_queue(self, connection: Connection, lane: Lane) -> None:
        """Take rewards out of the queue that no lane can mint, and put back those now within the
        limit.
        """
        over_capacity, self._over_capacity = self._over_capacity, []
        if over_capacity and self._is_confirmed:
            most = await self._largest_capacity(connection)
            too_large = [reward.id for reward in over_capacity if reward.ltz * LTZ > most]
            for reward in await rewards.set_above_limit(connection, lane, too_large):
                log.error("reward.above_mint_limit", reward=str(reward))
        await self._put_back(connection, lane)

    async def _largest_capacity(self, connection: Connection) -> int:
        """The largest capacity of the active mint wallets; unbounded if the node does not tell."""
        wallets = await lanes.list_mint_wallets(connection, self._target.chain_id)
        others = [wallet for wallet in wallets if wallet != self._minter]
        if not others or self._view is None:
            return self._capacity
        calls = [(self._target.ltz, ltz.mint_limit_call(wallet)) for wallet in others]
        try:
            answers = await self._view.views(calls)
            return max(self._capacity, *(ltz.decode_mint_limit(answer)[0] for answer in answers))
        except (NodeUnavailable, RpcError, ValueError) as error:
            log.warning("mint_limit.others_unknown", reason=type(error).__name__)
            return ltz.MAX_UNITS

    async def _put_back(self, connection: Connection, lane: Lane) -> None:
        """Put back rewards that this wallet's capacity covers, a bounded number at a time.

        Another lane may have taken them out while this one was away, so the lane goes on looking.
        """
        now = self._clock()
        if now < self._put_back_at:
            return
        most = min(self._capacity, ltz.MAX_UNITS) // LTZ
        put_back = await rewards.set_within_limit(connection, lane, most, _PUT_BACK_AT_ONCE)
        if put_back < _PUT_BACK_AT_ONCE:
            self._put_back_at = now + _PUT_BACK_SECONDS
        if put_back:
            log.info("rewards.within_mint_limit", rewards=put_back)


def _leniency(limit: _Limit) -> tuple[int, int]:
    return min(limit.available, limit.capacity), limit.capacity

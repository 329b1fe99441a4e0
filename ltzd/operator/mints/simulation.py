"""Simulates mints that may revert before they take a nonce, and finds the rewards at fault.

Mints are not simulated as a rule (decision 0003). They are after a revert, and when LTZ has refused
one of the rewards before, which the reward's row remembers. A batch that would revert is bisected
down to single rewards, and the parts that pass are minted together. A reward that reverts alone
while others pass is marked failed and leaves the queue. When nothing passes no reward is at fault:
the wallet has lost its role, or the token does not work.
"""

from collections.abc import Mapping, Sequence

import structlog

from ltzd import telemetry
from ltzd.chain.contracts import reverts
from ltzd.chain.node.node import Revert
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.mints.batch import encode_mint, seqs_of
from ltzd.operator.mints.gas import MintGas
from ltzd.operator.policy import MintTarget
from ltzd.store.database import Connection
from ltzd.store.operator import rewards
from ltzd.store.operator.rewards import QueuedReward

log = structlog.get_logger()

Batch = Sequence[QueuedReward]

_EVERY_MINT = frozenset({"AccessControlUnauthorizedAccount"})
"""Reverts of every mint of this wallet, for which no reward is at fault."""
_REFERENCE_USED = "RefAlreadyUsed"
"""Revert of a single mint: once the other mint is final, the reward gets a new reference."""
_TRANSIENT = _EVERY_MINT | {"MintLimitExceeded", _REFERENCE_USED}
"""Reverts that may pass by themselves, or on another node: a reward never fails for them."""


class MintSimulator:
    """`must_simulate`: a mint has reverted, so batches are simulated until one passes whole."""

    def __init__(
        self, context: LaneContext, target: MintTarget, gas: MintGas, *, must_simulate: bool
    ) -> None:
        self._context = context
        self._target = target
        self.gas = gas
        self._pauses = context.policy.pauses.simulation
        self._next_at = 0.0
        self._pause = self._pauses.first
        self._must_simulate = must_simulate
        self._view: ChainView | None = None

    def read_in(self, view: ChainView) -> None:
        """From now on simulations run at this node and block, those of the mint limit."""
        self._view = view

    def require_simulation(self) -> None:
        """A mint has reverted: simulate each batch until one passes whole."""
        self._must_simulate = True

    async def mintable(self, connection: Connection, batch: Batch, next_seq: int) -> Batch:
        """The rewards of the batch that LTZ would mint now; empty if it would mint none.

        Raises NodeUnavailable.
        """
        if not self._must_simulate and not any(map(_was_signed_or_failed, batch)):
            return batch
        now = self._context.clock()
        if now < self._next_at:
            return []
        mintable = await self._without_reverting(connection, batch, next_seq)
        if mintable:
            self._pause = self._pauses.first
        else:
            self._next_at = now + self._pause
            self._pause = min(2 * self._pause, self._pauses.longest)
        return mintable

    async def _without_reverting(
        self, connection: Connection, batch: Batch, next_seq: int
    ) -> Batch:
        (revert,) = await self._simulate([batch], next_seq)
        if revert is None:
            self._must_simulate = False
            return batch
        self._must_simulate = True
        log.error("mint.would_revert", reason=_reason(revert), rewards=len(batch))
        if _name(revert) in _EVERY_MINT:
            self._pause = self._pauses.first
            return []
        if _name(revert) == _REFERENCE_USED:
            await rewards.renew_queued(connection, [reward.id for reward in batch])
        passing, suspects = await self._bisect(batch, next_seq)
        if not passing:
            return []
        passing_ids = {reward.id for part in passing for reward in part}
        together = [reward for reward in batch if reward.id in passing_ids]
        # In one request with the rest, since a role that is granted between two requests would
        # make sound rewards look bad.
        alone = [[reward] for reward in suspects]
        *outcomes, revert = await self._simulate([*alone, together], next_seq)
        if revert is not None:
            return max(passing, key=len)
        await self._fail(connection, dict(zip(suspects, outcomes, strict=True)))
        return together

    async def _bisect(self, batch: Batch, next_seq: int) -> tuple[list[Batch], list[QueuedReward]]:
        """The parts that pass, and the rewards that revert even alone."""
        passing: list[Batch] = []
        suspects: list[QueuedReward] = []
        parts = _halves(batch)
        while parts:
            outcomes = zip(parts, await self._simulate(parts, next_seq), strict=True)
            parts = []
            for part, revert in outcomes:
                if revert is None:
                    passing.append(part)
                elif len(part) == 1:
                    suspects += part
                else:
                    parts += _halves(part)
        return passing, suspects

    async def _fail(
        self, connection: Connection, suspects: Mapping[QueuedReward, Revert | None]
    ) -> None:
        bad = {
            reward.id: _name(revert)
            for reward, revert in suspects.items()
            if revert is not None and _is_permanent(revert)
        }
        if not bad:
            return
        for failed in await rewards.fail(connection, self._context.lane, bad):
            log.error("reward.failed", reward=str(failed), reason=bad[failed])
            telemetry.REWARDS_FAILED.inc()

    async def _simulate(self, parts: Sequence[Batch], next_seq: int) -> list[Revert | None]:
        calls = [encode_mint(part, seqs_of(part, next_seq)) for part in parts]
        gas = [self.gas.limit(len(part)) for part in parts]
        wallet = self._context.lane.wallet
        if self._view is None:
            raise NodeUnavailable("No block has been read yet")
        node, head = self._view.node, self._view.head
        return await node.simulate(self._target.ltz, calls, wallet, gas, head)


def _was_signed_or_failed(reward: QueuedReward) -> bool:
    return reward.seq is not None or reward.has_failed


def _halves(part: Batch) -> list[Batch]:
    middle = len(part) // 2
    return [part[:middle], part[middle:]] if middle else []


def _name(revert: Revert) -> str:
    return reverts.error_name(revert.data or b"") or "reverted"


def _reason(revert: Revert) -> str:
    return revert.text[:200] if revert.data is None else reverts.describe(revert.data)


def _is_permanent(revert: Revert) -> bool:
    return revert.data is not None and _name(revert) not in _TRANSIENT

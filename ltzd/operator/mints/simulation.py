"""Simulates mints that may revert before they take a nonce, and finds the rewards at fault.

As a rule mints are not simulated (decision 0003). The exceptions are batches after a revert, and
batches with a reward that LTZ has refused before, as the reward's row records. A batch that would
revert is bisected down to single rewards, and the parts that pass are minted together. A reward
that reverts alone while others pass is marked failed and leaves the queue, once a second node says
the same, if there is one. When nothing passes no reward is at fault: the wallet has lost its role,
or the token does not work. Rewards that are minted apart, because their mints failed before, then
wait behind all others. A batch is simulated with exactly the gas limit with which it is signed. If
that does not suffice, the limits of all mints are raised.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

import msgspec
import structlog

from ltzd import telemetry
from ltzd.chain.contracts import reverts
from ltzd.chain.node.answers.typed import Revert
from ltzd.chain.node.second_opinions import SIMULATION, compare_views
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.mints.batch import (
    NO_REWARD,
    NO_WALLET,
    UNUSED_SEQ,
    encode_mint,
    number,
)
from ltzd.operator.mints.gas import MintGas
from ltzd.operator.policy import MintTarget
from ltzd.rules.operator.references import LaneReferences
from ltzd.store.database import session, transaction
from ltzd.store.operator import lanes, rewards
from ltzd.store.operator.rewards import QueuedReward

log = structlog.get_logger()

Batch = Sequence[QueuedReward]

_EVERY_MINT = frozenset({"AccessControlUnauthorizedAccount"})
"""Reverts of every mint of this wallet, for which no reward is at fault."""
_REFERENCE_USED = "RefAlreadyUsed"
"""Revert of a single mint: once the other mint is final, the reward gets a new reference."""
_TRANSIENT = _EVERY_MINT | {"MintLimitExceeded", _REFERENCE_USED, "Panic"}
"""Reverts that may pass by themselves, or on another node: a reward never fails for them.

LTZ panics only for a node that mixes the states of two blocks: the time is before its last mint.
"""


class PlannedMint(msgspec.Struct, frozen=True):
    """Rewards that are to be minted together, with this gas limit."""

    batch: Batch
    gas_limit: int


class MintBatch(msgspec.Struct, frozen=True):
    """Rewards that the lane wants to mint with its next references.

    `percent` is the factor for the gas limit, since mints of these rewards ran out of gas before.
    """

    batch: Batch
    references: LaneReferences
    percent: int = 100

    def of(self, part: Batch) -> "MintBatch":
        return MintBatch(part, self.references, self.percent)


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
        self._held: dict[UUID, tuple[float, float]] = {}
        """Rewards that did not pass although others may: until when others come first, and the
        pause after that."""
        self._view: ChainView | None = None

    def use_view(self, view: ChainView) -> None:
        """Run later simulations at this node and block, at which the mint limit was read."""
        self._view = view

    def require_simulation(self) -> None:
        """Simulate each batch from now on until one passes whole, since a mint has reverted."""
        self._must_simulate = True

    @property
    def held(self) -> Collection[UUID]:
        """The rewards that failed a simulation recently, so that those behind them come first."""
        now = self._context.clock()
        return [id_ for id_, (until, _) in self._held.items() if now < until]

    def holds(self, reward: QueuedReward) -> bool:
        """Whether the reward is one of the `held`."""
        return reward.id in self._held and self._context.clock() < self._held[reward.id][0]

    def must_wait(self, batch: Batch) -> bool:
        """Whether the last simulation reverted so recently that this batch is not simulated yet."""
        return self._must_simulate_now(batch) and self._context.clock() < self._next_at

    async def plan(self, request: MintBatch) -> PlannedMint:
        """The rewards of the batch that LTZ would mint now; none if it would mint none.

        Raises NodeUnavailable, DatabaseUnavailable.
        """
        if not self._must_simulate_now(request.batch):
            return self._planned(request)
        planned = await self._without_reverting(request)
        if planned.batch:
            self._pause = self._pauses.first
            return planned
        if not all(map(self.holds, request.batch)):
            self._next_at = self._context.clock() + self._pause
            self._pause = min(2 * self._pause, self._pauses.longest)
        return planned

    def _hold(self, batch: Iterable[QueuedReward]) -> None:
        """Let other rewards come first for a while."""
        now, longest = self._context.clock(), self._pauses.longest
        self._held = {id_: held for id_, held in self._held.items() if now - held[0] < longest}
        for reward in batch:
            _, pause = self._held.get(reward.id, (now, self._pauses.first))
            self._held[reward.id] = now + pause, min(2 * pause, longest)

    def _must_simulate_now(self, batch: Batch) -> bool:
        return self._must_simulate or any(map(_was_signed_or_failed, batch))

    def _planned(self, request: MintBatch) -> PlannedMint:
        count = len(request.batch)
        return PlannedMint(request.batch, self.gas.limit(count, request.percent) if count else 0)

    async def _without_reverting(self, request: MintBatch) -> PlannedMint:
        (revert,) = await self._simulate([request])
        if revert is None:
            self._must_simulate = False
            return self._planned(request)
        if revert.is_out_of_gas:
            planned = await self._with_more_gas(request)
            if planned is not None:
                return planned
        self._must_simulate = True
        batch, nothing = request.batch, self._planned(request.of([]))
        log.error("mint.would_revert", reason=_reason(revert), rewards=len(batch))
        if _name(revert) in _EVERY_MINT:
            self._pause = self._pauses.first
            return nothing
        if _name(revert) == _REFERENCE_USED:
            async with transaction(self._context.pool) as connection:
                await lanes.require_term(connection, self._context.lane)
                await rewards.renew_queued(connection, [reward.id for reward in batch])
            return nothing
        passing, suspects = await self._bisect(request)
        passing_ids = {reward.id for part in passing for reward in part}
        together = request.of([reward for reward in batch if reward.id in passing_ids])
        # In one request with the rest, since a role that is granted between two requests would
        # make sound rewards look bad.
        alone = [request.of([reward]) for reward in suspects]
        others = together if passing else request.of([_probe(batch)])
        *outcomes, revert = await self._simulate([*alone, others])
        if revert is not None:
            return self._planned(request.of(max(passing, key=len, default=[])))
        refused = {
            reward: outcome
            for reward, outcome in zip(suspects, outcomes, strict=True)
            if outcome is not None
        }
        self._hold(refused)
        await self._fail(request, refused)
        return self._planned(together)

    async def _with_more_gas(self, request: MintBatch) -> PlannedMint | None:
        """Raise the limits of all mints to the first at which the batch passes, or what fits of it.

        Returns None if none is enough.
        """
        raises = self.gas.raises(len(request.batch), request.percent)
        raised = [
            MintBatch(request.batch[:count], request.references, factor * request.percent)
            for factor, count in raises
        ]
        outcomes = await self._simulate(raised) if raised else []
        for (factor, count), outcome in zip(raises, outcomes, strict=True):
            if outcome is None:
                self.gas.raise_limits(factor)
                return self._planned(request.of(request.batch[:count]))
        return None

    async def _bisect(self, request: MintBatch) -> tuple[list[Batch], list[QueuedReward]]:
        """The parts that pass, and the rewards that revert even alone."""
        passing: list[Batch] = []
        suspects: list[QueuedReward] = []
        parts = _halves(request.batch) or [request.batch]
        while parts:
            reverts_ = await self._simulate([request.of(part) for part in parts])
            outcomes = zip(parts, reverts_, strict=True)
            parts = []
            for part, revert in outcomes:
                if revert is None:
                    passing.append(part)
                elif len(part) == 1:
                    suspects += part
                else:
                    parts += _halves(part)
        return passing, suspects

    async def _fail(self, request: MintBatch, refused: Mapping[QueuedReward, Revert]) -> None:
        """Fail the rewards that LTZ refuses for good, as far as other nodes say so, too."""
        bad = {reward: revert for reward, revert in refused.items() if _is_permanent(revert)}
        if not bad:
            return
        confirmed = await self._refused_by_nodes([request.of([reward]) for reward in bad])
        reasons = {
            reward.id: _name(revert) for reward, revert in bad.items() if reward.id in confirmed
        }
        if reasons:
            await self.fail(reasons)

    async def _refused_by_nodes(self, alone: Sequence[MintBatch]) -> Collection[UUID]:
        """The rewards that LTZ refuses, of those that the lane's node shows as refused for good.

        Returns none of them as long as no other node of several has answered.
        """
        view = self._read_view()
        ids = [request.batch[0].id for request in alone]

        async def refused(view: ChainView) -> frozenset[UUID]:
            outcomes = zip(ids, await self._simulate(alone, view), strict=True)
            return frozenset(id_ for id_, revert in outcomes if _is_permanent(revert))

        compared = await compare_views(view, frozenset(ids), refused, _leniency, SIMULATION)
        return compared.answer if compared.is_confirmed else ()

    async def fail(self, reasons: Mapping[UUID, str]) -> None:
        """Take rewards out of the queue until a person has looked into these reasons."""
        async with session(self._context.pool) as connection:
            failed = await rewards.fail(connection, self._context.lane, reasons)
        for reward in failed:
            log.error("reward.failed", reward=str(reward), reason=reasons[reward])
            telemetry.REWARDS_FAILED.inc()

    async def _simulate(
        self, requests: Sequence[MintBatch], view: ChainView | None = None
    ) -> list[Revert | None]:
        """How each mint would revert, by the block that was read last unless `view` is another."""
        calls = [
            encode_mint(each.batch, number(each.batch, each.references)[0]) for each in requests
        ]
        gas = [self.gas.limit(len(each.batch), each.percent) for each in requests]
        wallet = self._context.lane.wallet
        view = view or self._read_view()
        return await view.node.simulate(self._target.ltz, calls, wallet, gas, view.head)

    def _read_view(self) -> ChainView:
        if self._view is None:
            raise NodeUnavailable("No block has been read yet")
        return self._view


def _was_signed_or_failed(reward: QueuedReward) -> bool:
    return reward.seq is not None or reward.has_failed


def _leniency(refused: Collection[UUID]) -> int:
    return -len(refused)


def _probe(batch: Batch) -> QueuedReward:
    """A reward that nobody has, of the smallest amount in the batch."""
    smallest = min(reward.ltz for reward in batch)
    return QueuedReward(NO_REWARD, kind=1, wallet=NO_WALLET, ltz=smallest, seq=UNUSED_SEQ)


def _halves(part: Batch) -> list[Batch]:
    middle = len(part) // 2
    return [part[:middle], part[middle:]] if middle else []


def _name(revert: Revert) -> str:
    return reverts.error_name(revert.data or b"") or "reverted"


def _reason(revert: Revert) -> str:
    return revert.text[:200] if revert.data is None else reverts.describe(revert.data)


def _is_permanent(revert: Revert | None) -> bool:
    return revert is not None and revert.data is not None and _name(revert) not in _TRANSIENT

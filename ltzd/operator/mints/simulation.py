"""Simulates a mint before it has a nonce, where it may revert, and finds out whose fault it is.

Mints are not simulated as a rule (decision 0003). They are after a revert, and when one of the
rewards has been refused before: that is in the rows, so it outlasts the term. What would revert is
halved, and its halves are, down to single rewards; what passes is minted together. A reward that
reverts alone while the others pass is bad: it is marked failed and leaves the queue. When nothing
passes it is nobody's fault: the minter has lost its role, or the token does not work.
"""

from collections.abc import Mapping, Sequence

import structlog

from ltzd import telemetry
from ltzd.chain.contracts import ltz, reverts
from ltzd.chain.node.node import Revert
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.mints.batch import call_of, numbered
from ltzd.operator.policy import MintTarget
from ltzd.store.database import Connection
from ltzd.store.operator import rewards
from ltzd.store.operator.rewards import QueuedReward

log = structlog.get_logger()

Part = Sequence[QueuedReward]

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 16.0
_THE_LANES = frozenset({"AccessControlUnauthorizedAccount"})
"""Reverts of every mint of this wallet: looking for a reward to blame is in vain."""
_NOT_ITS_FAULT = _THE_LANES | {"MintLimitExceeded", "RefAlreadyUsed"}
"""Reverts that another time, or another eye, may judge differently: never a reason to fail."""


class MintSimulator:
    def __init__(self, context: LaneContext, target: MintTarget, *, must_simulate: bool) -> None:
        self._context = context
        self._target = target
        self._due = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self.must_simulate = must_simulate
        """After a mint reverted, or would, each batch is simulated until one passes whole."""

    async def passing(self, connection: Connection, batch: Part, next_seq: int) -> Part:
        """The batch, or what LTZ would mint of it now; nothing while it would mint none of it.

        Raises NodeUnavailable.
        """
        if not self.must_simulate and not any(map(_is_suspect, batch)):
            return batch
        now = self._context.clock()
        if now < self._due:
            return []
        found = await self._sorted_out(connection, batch, next_seq)
        if found:
            self._pause = _FIRST_PAUSE_SECONDS
        else:
            self._due = now + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        return found

    async def _sorted_out(self, connection: Connection, batch: Part, next_seq: int) -> Part:
        (revert,) = await self._simulate([batch], next_seq)
        if revert is None:
            self.must_simulate = False
            return batch
        self.must_simulate = True
        log.error("mint.would_revert", reason=_reason(revert), rewards=len(batch))
        if _name(revert) in _THE_LANES:
            self._pause = _FIRST_PAUSE_SECONDS
            return []
        sound, suspects = await self._halved(batch, next_seq)
        if not sound:
            return []
        passing = {one.id for part in sound for one in part}
        together = [one for one in batch if one.id in passing]
        # In the same breath as the rest of them, since a role that came back between two questions
        # makes suspects of the innocent.
        alone = [[one] for one in suspects]
        *outcomes, revert = await self._simulate([*alone, together], next_seq)
        if revert is not None:
            return max(sound, key=len)
        await self._fail(connection, dict(zip(suspects, outcomes, strict=True)))
        return together

    async def _halved(self, batch: Part, next_seq: int) -> tuple[list[Part], list[QueuedReward]]:
        """The parts that pass, and the rewards that do not even alone."""
        sound: list[Part] = []
        suspects: list[QueuedReward] = []
        parts = _halves(batch)
        while parts:
            outcomes = zip(parts, await self._simulate(parts, next_seq), strict=True)
            parts = []
            for part, revert in outcomes:
                if revert is None:
                    sound.append(part)
                elif len(part) == 1:
                    suspects += part
                else:
                    parts += _halves(part)
        return sound, suspects

    async def _fail(
        self, connection: Connection, suspects: Mapping[QueuedReward, Revert | None]
    ) -> None:
        bad = {
            one.id: _name(revert)
            for one, revert in suspects.items()
            if revert is not None and _is_its_fault(revert)
        }
        if not bad:
            return
        for failed in await rewards.fail(connection, self._context.lane, bad):
            log.error("reward.failed", reward=str(failed), reason=bad[failed])
            telemetry.REWARDS_FAILED.inc()

    async def _simulate(self, parts: Sequence[Part], next_seq: int) -> list[Revert | None]:
        calls = [call_of(part, numbered(part, next_seq)) for part in parts]
        gas = [ltz.mint_gas_limit(len(part)) for part in parts]
        return await self._context.node.simulate(
            self._target.ltz, calls, self._context.lane.wallet, gas
        )


def _is_suspect(reward: QueuedReward) -> bool:
    return reward.seq is not None or reward.has_failed


def _halves(part: Part) -> list[Part]:
    middle = len(part) // 2
    return [part[:middle], part[middle:]] if middle else []


def _name(revert: Revert) -> str:
    return reverts.error_name(revert.data or b"") or "reverted"


def _reason(revert: Revert) -> str:
    return revert.text[:200] if revert.data is None else reverts.describe(revert.data)


def _is_its_fault(revert: Revert) -> bool:
    return revert.data is not None and _name(revert) not in _NOT_ITS_FAULT

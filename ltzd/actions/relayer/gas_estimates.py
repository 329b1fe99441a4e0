"""How much gas a relayed call is likely to need: what its like needed a moment ago.

A node estimates by running a call some ten times. Run once, with the gas of a guess, a call shows
as well whether that is enough; so a guess may be wrong, and costs an estimate then.
"""

import time
from dataclasses import dataclass

from ltzd.concurrency.clock import Clock
from ltzd.rules.relayer.allowed_calls import MAX_GAS_LIMIT
from ltzd.rules.relayer.calls import RelayPlan

_FRESH_SECONDS = 10.0
_STEP = 5_000
_MOST = 64

_Kind = tuple[str, int]
"""A function and the length of its data."""


@dataclass(slots=True)
class _Guess:
    gas: int
    stale_at: float


class GasEstimateCache:
    """`clock` counts seconds."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._guesses: dict[_Kind, _Guess] = {}

    def has(self, plan: RelayPlan) -> bool:
        return _kind(plan) in self._guesses

    def of(self, plan: RelayPlan) -> int | None:
        """None where there is none, and now and then for one, so that a high guess comes down."""
        guess = self._guesses.get(_kind(plan))
        if guess is None:
            return None
        now = self._clock()
        if now < guess.stale_at:
            return guess.gas
        guess.stale_at = now + _FRESH_SECONDS  # The others go on with it meanwhile.
        return None

    def learn(self, plan: RelayPlan, needed: int) -> None:
        if len(self._guesses) >= _MOST:
            self._guesses.clear()
        gas = min(MAX_GAS_LIMIT, -(-needed // _STEP) * _STEP)
        self._guesses[_kind(plan)] = _Guess(gas, self._clock() + _FRESH_SECONDS)


def _kind(plan: RelayPlan) -> _Kind:
    return plan.function, len(plan.data)

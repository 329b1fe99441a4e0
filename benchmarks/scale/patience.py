"""Computes the share of the price of the moment that a patient brand pays, on synthetic base fees.

`python -m benchmarks.scale.patience` prints a table. The base fees are seeded random walks that
return to their mean, so the figures compare rules; a real chain's savings depend on its own fees.
"""

import math
import random
from collections.abc import Callable, Mapping

from ltzd.rules.operator.patience import LEAD_SECONDS, RECENT_BLOCKS, FeeWindow, release

_BLOCK_SECONDS = 12
_BLOCKS = 24_000
_WEI = 10**9
_EVERY = 97
"""Blocks between two rewards."""

Rule = Callable[[float, float, FeeWindow], bool]
"""Whether to mint, from the patience, the time waited, and the fees."""


def base_fees(pull: float, noise: float, daily: float) -> list[int]:
    """Base fees in wei around one gwei. `daily` is the amplitude of a wave of 7,200 blocks."""
    numbers, level = random.Random(22), 0.0
    fees = []
    for block in range(_BLOCKS):
        level += noise * numbers.gauss(0, 1) - pull * level
        fees.append(int(_WEI * math.exp(level + daily * math.sin(2 * math.pi * block / 7_200))))
    return fees


def ours(patience: float, waited: float, fees: FeeWindow) -> bool:
    return release(patience, waited, fees) is not None


def below(share: float) -> Rule:
    """Wait for a fee with at most this share of the recent ones below it, or for the bound."""
    return lambda patience, waited, fees: (
        waited >= patience - LEAD_SECONDS or fees.share_cheaper <= share
    )


RULES: Mapping[str, Rule] = {"the rule": ours, "always 0.1": below(0.1), "always 0.5": below(0.5)}
SERIES: Mapping[str, tuple[float, float, float]] = {
    "quick changes": (0.05, 0.1, 0.0),
    "slow changes": (0.003, 0.03, 0.0),
    "a daily wave": (0.01, 0.04, 0.4),
}
PATIENCE = {"5 minutes": 300, "1 hour": 3_600, "6 hours": 21_600}


def outcome(fees: list[int], patience: int, rule: Rule) -> tuple[float, float]:
    """The price of gas as a share of the price at once, and the mean wait as one of the bound."""
    paid = at_once = waits = rewards = 0
    for queued in range(RECENT_BLOCKS, _BLOCKS - patience // _BLOCK_SECONDS - 1, _EVERY):
        block = queued
        while True:
            recent = tuple(sorted(fees[block - RECENT_BLOCKS : block : 4]))
            waited = (block - queued) * _BLOCK_SECONDS
            if rule(patience, waited, FeeWindow(recent, fees[block])):
                break
            block += 1
        paid, at_once = paid + fees[block], at_once + fees[queued]
        waits, rewards = waits + block - queued, rewards + 1
    return paid / at_once, waits * _BLOCK_SECONDS / rewards / patience


def main() -> None:
    print(f"| fees | patience | {' | '.join(RULES)} |\n|---|---|{'---|' * len(RULES)}")
    for series, parameters in SERIES.items():
        fees = base_fees(*parameters)
        for name, seconds in PATIENCE.items():
            outcomes = [outcome(fees, seconds, rule) for rule in RULES.values()]
            cells = [
                f"{price:.2f} of the price, {wait:.2f} of the time" for price, wait in outcomes
            ]
            print(f"| {series} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""A seeded schedule of faults, drawn without running anything."""

import random
from collections.abc import Collection
from dataclasses import dataclass

NODE, LIE = "a node is", "a node lies:"
KILL = "kill -9 of ltzd"
FREEZE = "ltzd is frozen"


@dataclass(frozen=True)
class Step:
    """A fault, the seconds that it lasts, and the seconds of health after it.

    `detail` is the kind of a node's fault, or empty.
    """

    fault: str
    detail: str
    lasts: float
    rests: float

    def sentence(self) -> str:
        return (
            f"{self.fault}{self.detail and ' '}{self.detail}, for {self.lasts:.1f} s, "
            f"then {self.rests:.1f} s of health"
        )


@dataclass(frozen=True)
class Faults:
    """The faults by name with the longest that each may last; 0 is over at once.

    `details` are the kinds of those that have some.
    """

    longest: dict[str, float]
    details: dict[str, Collection[str]]


def schedule(seed: int, seconds: float, faults: Faults) -> list[Step]:
    """The steps of at least so many seconds; the first steps have each fault once."""
    draw = random.Random(seed)
    names = sorted(faults.longest)
    first = draw.sample(names, len(names))
    steps: list[Step] = []
    while len(steps) < len(first) or sum(step.lasts + step.rests for step in steps) < seconds:
        fault = first[len(steps)] if len(steps) < len(first) else draw.choice(names)
        longest = faults.longest[fault]
        lasts = draw.uniform(0.3 * longest, longest)
        detail = draw.choice(sorted(faults.details.get(fault, [""])))
        steps.append(Step(fault, detail, lasts, draw.uniform(0.3, 1.5)))
    return steps

"""Commits a second with a NOTIFY in each, beside commits that are announced afterwards.

Why ltzd announces what many requests commit only after the commit (`ltzd/store/wakeups.py`).
"""

import tempfile
from pathlib import Path
from statistics import median

from benchmarks.harness import results
from benchmarks.harness.results import Ratio
from benchmarks.limits import inserts
from benchmarks.limits.inserts import Inserted, InsertLoad
from ltzd.dev.services import postgres

CONNECTIONS = (1, 16, 64)
_WARM_UP_SECONDS = 0.5


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        server = await postgres.start(Path(name))
        try:
            measured = {
                count: [await _round(server.url, count, seconds) for _ in range(rounds)]
                for count in CONNECTIONS
            }
        finally:
            await postgres.stop(Path(name))
    ratios = [_ratio(count, sides) for count, sides in measured.items()]
    details = {
        str(count): [[side.as_json() for side in pair] for pair in sides]
        for count, sides in measured.items()
    }
    results.record("commits", ratios, details, in_document=in_document)


async def _round(url: str, connections: int, seconds: float) -> tuple[Inserted, Inserted]:
    """The commits that notify, and those that do not."""
    return (
        await _side(url, connections, seconds, notifies=True),
        await _side(url, connections, seconds, notifies=False),
    )


async def _side(url: str, connections: int, seconds: float, *, notifies: bool) -> Inserted:
    load = InsertLoad(url, connections, 1, _WARM_UP_SECONDS, seconds, notifies)
    return await inserts.measure(load)


def _ratio(connections: int, sides: list[tuple[Inserted, Inserted]]) -> Ratio:
    notifying, silent = zip(*sides, strict=True)
    figures = (
        f"{median(side.per_second for side in notifying):,.0f} ÷ "
        f"{median(side.per_second for side in silent):,.0f} a second"
    )
    return Ratio(
        name=f"commits that notify ÷ commits that do not, {connections} connections",
        rounds=tuple(loud.per_second / quiet.per_second for loud, quiet in sides),
        figures=figures,
    )

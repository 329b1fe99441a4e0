"""`ltzd books` tells how far it is, and not more often than every ten seconds."""

from itertools import count

from ltzd.cli.books.progress import StepLines
from ltzd.store.books import reconciliation
from ltzd.store.books.readers import Readers
from ltzd.store.books.screens import SCREENS
from ltzd.store.database import Connection


def test_a_line_is_printed_for_every_ten_seconds_of_work() -> None:
    lines: list[str] = []
    seconds = count(0, 2)  # each step takes some seconds of this clock
    progress = StepLines(40, lines.append, lambda: float(next(seconds)), every_seconds=10)

    for step in range(1, 13):
        progress.begin(f"check {step}")

    assert lines == ["Step 5 of 40: check 5.", "Step 10 of 40: check 10."]


async def test_every_step_is_told_once(db: Connection) -> None:
    begun: list[str] = []

    await reconciliation.reconcile_all(Readers([db]), 1, None, begun.append)

    named = [*(screen.name for screen in SCREENS), *(each.kind for each in reconciliation.CHECKS)]
    assert sorted(begun) == sorted(named)
    assert len(begun) == reconciliation.STEPS

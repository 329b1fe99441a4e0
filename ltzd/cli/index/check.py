"""`ltzd index check` and `ltzd index repair`: compare ranges of blocks with the nodes."""

import asyncio
from collections import Counter
from typing import Any

import msgspec

from ltzd.cli.index.progress import block_progress
from ltzd.cli.index.target import IndexTarget, OpenIndex, open_index
from ltzd.cli.output import only_errors_logged, print_json, print_message
from ltzd.errors import IndexMoved, Misconfigured, NodeUnavailable, Unavailable
from ltzd.indexer.policy import IndexerPolicy
from ltzd.indexer.repair import IndexRepair, RangeCheck
from ltzd.rules.indexer.differences import Difference
from ltzd.store import wakeups
from ltzd.store.database import session, transaction
from ltzd.store.indexer import chains
from ltzd.store.wakeups import BLOCKS
from ltzd.values import Hash32, hex_of

_SHOWN = 20
"""The most differences that are named; the others are only counted."""
_ATTEMPTS = 5
_PAUSE_SECONDS = 1.0


class IndexReport(msgspec.Struct):
    """The blocks first…last. `stopped` is why the index is stopped after the command, or None.

    `corrected` counts the facts that were corrected. `has_uncorrected` tells whether corrections
    are left that contradict other facts.
    """

    first: int
    last: int
    repairs: bool
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    differences: list[Difference] = msgspec.field(default_factory=list)
    undecided: list[int] = msgspec.field(default_factory=list)
    derived: Counter[str] = msgspec.field(default_factory=Counter)
    """Rows that do not follow from the facts, by table; compared only with all blocks."""
    corrected: int = 0
    has_uncorrected: bool = False
    was_stopped: bool = False
    stopped: str | None = None

    @property
    def is_clean(self) -> bool:
        return not self.counts and not self.derived and not self.undecided

    @property
    def is_corrected(self) -> bool:
        return not self.has_uncorrected and not self.undecided

    def add(self, check: RangeCheck) -> None:
        self.counts += check.counts()
        self.differences += check.differences[: max(0, _SHOWN - len(self.differences))]
        self.undecided += check.undecided


def run(
    where: IndexTarget,
    first: int | None,
    last: int | None,
    *,
    repairs: bool,
    is_quiet: bool = False,
) -> IndexReport:
    """Check the blocks first…last, by default all that are indexed; corrects them with `repairs`.

    Raises Unavailable, Misconfigured.
    """
    with only_errors_logged():
        return asyncio.run(compare(where, first, last, repairs=repairs, is_quiet=is_quiet))


async def compare(
    where: IndexTarget, first: int | None, last: int | None, *, repairs: bool, is_quiet: bool
) -> IndexReport:
    """As `run`."""
    if first is not None and last is not None and last < first:
        raise Misconfigured("--to must not be below --from: it is the last block to compare.")
    async with open_index(where) as index:
        async with session(index.pool) as connection:
            cursor = await chains.cursor(connection, index.chain.chain_id)
        lowest = index.chain.first_block
        report = IndexReport(
            max(lowest, lowest if first is None else first),
            min(cursor.number, cursor.number if last is None else last),
            repairs,
        )
        repair = IndexRepair(index.pool, index.chain.chain_id, index.contracts, IndexerPolicy())
        with block_progress(
            "Repairing" if repairs else "Checking", report.first, report.last, is_quiet=is_quiet
        ) as advance:
            block = report.first
            while block <= report.last:
                check = await _check(index, repair, report, block)
                if check.last < block:
                    report.last = block - 1  # A reorg has undone the blocks above.
                    break
                report.add(check)
                advance(check.last)
                block = check.last + 1
        report.has_uncorrected = repair.has_uncorrected()
        if first is None and last is None and not report.has_uncorrected:
            report.derived = await repair.check_derived(corrects=repairs)
        await _end(index, report)
        return report


async def _check(
    index: OpenIndex, repair: IndexRepair, report: IndexReport, first: int
) -> RangeCheck:
    """One range from `first` on, corrected by `ltzd index repair`.

    No block is compared if none from `first` on is indexed any more. Raises Unavailable.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            await asyncio.sleep(_PAUSE_SECONDS)
        try:
            check = await repair.check(index.node, first, report.last)
            if report.repairs:
                report.corrected += await repair.correct(check)
        except (NodeUnavailable, IndexMoved) as error:
            reason = error.message
        else:
            return check
    raise Unavailable(
        f"The blocks from {first} on could not be compared: {reason}. "
        f"Repeat the command with --from {first}."
    )


async def _end(index: OpenIndex, report: IndexReport) -> None:
    """Let a stopped index go on after a repair."""
    chain_id = index.chain.chain_id
    async with transaction(index.pool) as connection:
        report.stopped = await chains.stopped_reason(connection, chain_id)
        report.was_stopped = report.stopped is not None
        if report.repairs and report.is_corrected and await chains.resume(connection, chain_id):
            report.stopped = None
            await wakeups.notify(connection, BLOCKS)


def show(report: IndexReport, options: str, *, as_json: bool) -> None:
    """`options` name the same database for the commands that the report proposes."""
    if as_json:
        print_json(_as_json(report))
        return
    for difference in report.differences:
        print(
            f"{difference.kind}: {difference.table}, block {difference.block_number}, "
            f"log {difference.log_index}, transaction "
            f"{hex_of(Hash32(difference.transaction_hash))}"
        )
    unnamed = report.counts.total() - len(report.differences)
    if unnamed > 0:
        print(f"… and {unnamed} more")
    for sentence in _sentences(report, options):
        print_message(sentence)


def _sentences(report: IndexReport, options: str) -> list[str]:
    counts = report.counts
    if report.first > report.last:
        return ["No block of this range is indexed."]
    blocks = f"Blocks {report.first} to {report.last}"
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("missing", "foreign", "wrong"))
    lines = [f"{blocks}: " + (f"{kinds}." if counts else "the index agrees with the nodes.")]
    if report.repairs and counts:
        facts = "1 fact was" if report.corrected == 1 else f"{report.corrected} facts were"
        lines.append(f"{facts} corrected.")
    if report.derived:
        rows = ", ".join(f"{count} of {table}" for table, count in report.derived.items())
        verb = "did" if report.repairs else "do"
        made = ", and were made anew" if report.repairs else ""
        lines.append(f"Derived rows that {verb} not follow from the facts: {rows}{made}.")
    if report.undecided:
        numbers = ", ".join(map(str, report.undecided[:_SHOWN]))
        lines.append(
            f"Nodes contradict each other or themselves about the blocks {numbers}: nothing was "
            "changed there. Repeat the command with another node in [node] urls."
        )
    if report.has_uncorrected:
        lines.append(
            "Corrections were left out, because a balance would fall below zero: repair all "
            f"blocks, without --from and --to, or run: ltzd index rebuild{options}"
        )
    if report.stopped is not None:
        lines.append(f"The index is stopped: {report.stopped}")
    elif report.was_stopped:
        lines.append("The index was stopped, and continues now.")
    elif not report.repairs and not report.is_clean:
        lines.append(f"Run: ltzd index repair{options}")
    return lines


def _as_json(report: IndexReport) -> dict[str, Any]:
    return {
        "from": report.first,
        "to": report.last,
        "missing": report.counts["missing"],
        "foreign": report.counts["foreign"],
        "wrong": report.counts["wrong"],
        "derived": dict(report.derived),
        "mended": report.corrected,
        "undecided": report.undecided,
        "leftOut": report.has_uncorrected,
        "stopped": report.stopped,
        "differences": [
            {
                "kind": difference.kind,
                "table": difference.table,
                "block": difference.block_number,
                "logIndex": difference.log_index,
                "transactionHash": hex_of(Hash32(difference.transaction_hash)),
            }
            for difference in report.differences
        ],
    }

"""Shows a report of `ltzd books` as text or as JSON."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import msgspec
from rich.table import Column, Table
from rich.text import Text

from ltzd.cli.output import plain_text
from ltzd.rules.books import Disagreement, Figures, IndexedLtz, whole_ltz
from ltzd.store.books.figures import Period
from ltzd.values import ZERO_ADDRESS, Address, hex_of, iso


class BrandFigures(msgspec.Struct, frozen=True):
    """`name` is None for a deleted brand and for payments without a brand (`ZERO_ADDRESS`)."""

    id: Address
    name: str | None
    figures: Figures

    @property
    def title(self) -> str:
        return self.name or ("no brand" if self.id == ZERO_ADDRESS else "unknown brand")


class Report(msgspec.Struct, frozen=True):
    """`indexed` is None if the report is for one brand, or no chain is indexed.

    `supply` is LTZ's own total supply; it is None, with a reason in `notes`, if it was not read.
    """

    period: Period
    brands: tuple[BrandFigures, ...]
    differences: tuple[Disagreement, ...]
    indexed: IndexedLtz | None
    notes: tuple[str, ...]
    acknowledged: tuple[Disagreement, ...] = ()
    """Rows that a person has explained; they are no disagreements."""
    supply: int | None = None

    @property
    def totals(self) -> Figures:
        return Figures.total(brand.figures for brand in self.brands)


def as_json(report: Report) -> dict[str, Any]:
    indexed, period = report.indexed, report.period
    return {
        "agree": not report.differences,
        "from": period.since and iso(period.since),
        "to": period.until and iso(period.until),
        "brands": [
            {
                "brandId": None if brand.id == ZERO_ADDRESS else hex_of(brand.id),
                "name": brand.name,
                **_figures(brand.figures),
            }
            for brand in report.brands
        ],
        "totals": _figures(report.totals),
        "chain": indexed
        and {
            "blockNumber": indexed.number,
            "blockHash": hex_of(indexed.hash),
            "balancesLtz": whole_ltz(indexed.balances),
            "supplyLtz": None if report.supply is None else whole_ltz(report.supply),
        },
        "disagreements": [
            {
                "kind": each.kind,
                "meaning": each.meaning,
                "count": each.count,
                "rows": [{"id": row.id, **row.sides} for row in each.rows],
            }
            for each in report.differences
        ],
        "acknowledged": [
            {
                "kind": each.kind,
                "meaning": each.meaning,
                "count": each.count,
                "rows": [{"id": row.id, "reason": row.reason, **row.sides} for row in each.rows],
            }
            for each in report.acknowledged
        ],
        "notes": report.notes,
    }


def _figures(of: Figures) -> dict[str, Any]:
    return {
        "answered": {"count": of.answered, "ltz": of.answered_ltz},
        "bought": {"count": of.bought, "usd": dollars(of.bought_cents), "ltz": of.bought_ltz},
        "other": {"count": of.other, "ltz": of.other_ltz},
        "minted": {"count": of.minted, "ltz": of.minted_ltz},
        "waiting": {"queued": of.queued, "inFlight": of.in_flight, "failed": of.failed},
        "announced": {
            "delivered": of.delivered,
            "pending": of.pending,
            "exhausted": of.exhausted,
        },
        "onChain": {"count": of.on_chain, "ltz": whole_ltz(of.on_chain_units)},
    }


def dollars(cents: int) -> Decimal:
    return Decimal(cents).scaleb(-2)


def table(report: Report) -> Table:
    titles = ("answered", "bought", "other", "minted", "waiting", "announced", "on chain")
    rows = Table(
        Column("brand", overflow="fold", min_width=12),
        *(Column(title, justify="right", no_wrap=True) for title in titles),
        box=None,
        padding=(0, 2, 0, 0),
    )
    for brand in report.brands:
        id_ = "" if brand.id == ZERO_ADDRESS else f"\n{hex_of(brand.id)}"
        rows.add_row(Text.assemble(plain_text(brand.title), id_), *_cells(brand.figures))
    rows.add_row("total", *_cells(report.totals))
    return rows


def _cells(of: Figures) -> Iterator[str]:
    yield f"{of.answered:,}\n{of.answered_ltz:,} LTZ"
    yield f"{of.bought:,}\n{dollars(of.bought_cents):,} USD\n{of.bought_ltz:,} LTZ"
    yield f"{of.other:,}\n{of.other_ltz:,} LTZ"
    yield f"{of.minted:,}\n{of.minted_ltz:,} LTZ"
    yield f"{of.queued:,} queued\n{of.in_flight:,} in flight\n{of.failed:,} failed"
    yield f"{of.delivered:,} delivered\n{of.pending:,} pending\n{of.exhausted:,} exhausted"
    yield f"{of.on_chain:,}\n{_ltz(of.on_chain_units)} LTZ"


def lines(report: Report) -> Iterator[str]:
    """The lines below the table, not wrapped."""
    yield from _chain_lines(report)
    for each in report.acknowledged:
        yield from _disagreement_lines(each, "acknowledged, ")
    for each in report.differences:
        yield from _disagreement_lines(each)
    if not report.differences:
        yield f"The books agree{' as far as they were compared' if report.notes else ''}."


def _chain_lines(report: Report) -> Iterator[str]:
    indexed = report.indexed
    if indexed is None:
        return
    yield f"Indexed up to block {indexed.number} {hex_of(indexed.hash)}."
    yield f"All wallets hold {_ltz(indexed.balances)} LTZ."
    if report.supply is not None:
        yield f"LTZ's total supply at that block is {_ltz(report.supply)} LTZ."


def _disagreement_lines(of: Disagreement, prefix: str = "") -> Iterator[str]:
    yield ""
    yield f"{of.kind} ({prefix}{of.count:,}): {of.meaning}"
    for row in of.rows:
        sides = "; ".join(f"{name}: {_side(side)}" for name, side in row.sides.items())
        yield plain_text(f"  {row.id}  {sides}").plain
        if row.reason is not None:
            yield plain_text(f"    because: {row.reason}").plain
    if of.count > len(of.rows):
        yield f"  and {of.count - len(of.rows):,} more"


def _side(side: Mapping[str, object] | None) -> str:
    if side is None:
        return "none"
    return ", ".join(f"{name} {_value(value)}" for name, value in side.items())


def _value(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"  # no exponent
    return "none" if value is None else str(value)


def _ltz(units: int) -> str:
    return f"{Decimal(whole_ltz(units)):,f}"

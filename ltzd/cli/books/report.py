"""`ltzd books`: reads the database in one snapshot and the chain, and compares them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from ltzd.chain.contracts import ltz_state
from ltzd.chain.contracts.ltz_state import LtzState
from ltzd.cli.books import views as books_views
from ltzd.cli.books.progress import BeginStep, step_progress
from ltzd.cli.books.views import BrandFigures, Report
from ltzd.cli.brand.lookup import find_brand
from ltzd.cli.chain_targets import resolve_chain_target
from ltzd.cli.command_node import answering_nodes
from ltzd.cli.output import print_json, print_message, print_page
from ltzd.cli.targets import Target, open_connection
from ltzd.errors import DatabaseUnavailable, Misconfigured, NodeUnavailable
from ltzd.rules.books import (
    DifferingRow,
    Disagreement,
    Figures,
    IndexedLtz,
    explained,
    first_rows,
    reference_differences,
    whole_ltz,
)
from ltzd.rules.nodes.disagreement import dissenters
from ltzd.store.books import acknowledgements, reconciliation
from ltzd.store.books import figures as books
from ltzd.store.books.figures import Period
from ltzd.store.books.readers import Readers, readers_of, side_by_side
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.records import BrandRecord
from ltzd.store.database import Connection
from ltzd.values import ZERO_ADDRESS, Address

CHAIN_KINDS = (
    *("supply_and_balances_differ", "used_without_mint", "mint_without_use"),
    "nodes_contradict",
)
"""The kinds of disagreements between the index and LTZ's own state, and between nodes about it."""
_SUPPLY, _USED, _UNUSED, _NODES = CHAIN_KINDS
_OTHER_STEPS = 2
"""The amounts by brand, and the chain."""
NAMED_ROWS = 20
"""The most rows named for each kind of disagreement; the others are only counted."""


def build_report(
    target: Target, data_dir: Path, config: Path | None, brand: str | None, period: Period
) -> Report:
    return asyncio.run(read_report(target, data_dir, config, brand, period))


def show(report: Report, *, as_json: bool) -> None:
    for note in report.notes:
        print_message(note)
    if as_json:
        print_json(books_views.as_json(report))
    else:
        print_page(books_views.table(report))
        print(*books_views.lines(report), sep="\n", flush=True)


async def read_report(
    target: Target,
    data_dir: Path,
    config: Path | None,
    brand: str | None = None,
    period: Period = books.ALL_TIME,
    at_most: int = NAMED_ROWS,
) -> Report:
    """The report, with up to `at_most` rows of each disagreement."""
    with step_progress(reconciliation.STEPS + _OTHER_STEPS) as begin:
        async with _connections(target) as connections:
            async with readers_of(connections) as readers:
                report = await _read(readers, brand, period, at_most, begin)
            if brand is None and report.indexed is not None:
                begin("the chain")
                report = await _with_chain(connections[0], report, data_dir, config, at_most)
            return report


@asynccontextmanager
async def _connections(target: Target) -> AsyncIterator[list[Connection]]:
    """Two connections, or one where the server grants no second."""
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(open_connection(target, "books"))]
        with suppress(Misconfigured, DatabaseUnavailable):
            second = await stack.enter_async_context(open_connection(target, "books"))
            connections.append(second)
        yield connections


async def _read(
    readers: Readers, brand: str | None, period: Period, at_most: int, begin: BeginStep
) -> Report:
    known = await readers.read(
        brand_records.list_all if brand is None else partial(_only_brand, brand)
    )
    only = None if brand is None else known[0].id
    async with side_by_side() as group:
        begin("amounts by brand")
        figures = group.create_task(
            readers.read(partial(books.read_figures, brand=only, period=period))
        )
        indexed = group.create_task(readers.read(books.read_indexed_ltz)) if brand is None else None
        above = group.create_task(readers.read(reconciliation.count_above_index))
        reconciled = group.create_task(reconciliation.reconcile_all(readers, at_most, only, begin))
    differences, acknowledged = reconciled.result()
    return Report(
        period=period,
        brands=_rows(known, figures.result()),
        differences=tuple(differences),
        acknowledged=tuple(acknowledged),
        indexed=None if indexed is None else indexed.result(),
        notes=_notes_of(above.result()),
    )


async def _only_brand(named: str, connection: Connection) -> list[BrandRecord]:
    return [await find_brand(connection, named)]


def _rows(known: list[BrandRecord], figures: dict[Address, Figures]) -> tuple[BrandFigures, ...]:
    """A row for every brand, then for deleted brands, then for payments without a brand."""
    names = {record.id: record.name for record in known}
    deleted = sorted(figures.keys() - names.keys() - {ZERO_ADDRESS})
    without_brand = [ZERO_ADDRESS] if ZERO_ADDRESS in figures else []
    return tuple(
        BrandFigures(id_, names.get(id_), figures.get(id_, Figures()))
        for id_ in (*names, *deleted, *without_brand)
    )


def _notes_of(above: int) -> tuple[str, ...]:
    if not above:
        return ()
    read_again = (
        f"The indexer is reading the chain again: {above} rewards are minted above its block and "
        "were not compared. Repeat the command when it has caught up."
    )
    return (read_again,)


async def _with_chain(
    connection: Connection, report: Report, data_dir: Path, config: Path | None, at_most: int
) -> Report:
    """The report with LTZ's own state, or with a note why it was not read."""
    indexed = report.indexed
    assert indexed is not None
    try:
        states = await _read_chain(indexed, data_dir, config)
    except (Misconfigured, NodeUnavailable) as error:
        reason = error.message.removesuffix(".")
        return replace(report, notes=(*report.notes, f"The chain was not compared: {reason}."))
    outvoted = [list(states)[at] for at in dissenters([state.key for state in states.values()])]
    if len(outvoted) == len(states):
        return replace(report, differences=(*report.differences, _contradiction(states)))
    state = next(state for name, state in states.items() if name not in outvoted)
    differences = list(report.differences)
    acknowledged = list(report.acknowledged)
    reasons = reconciliation.reasons_by_kind(await acknowledgements.list_all(connection))
    for each in await _compare_with_chain(connection, indexed, state):
        left, done = explained(each, reasons.get(each.kind, {}))
        for rows, difference in ((differences, left), (acknowledged, done)):
            if difference is not None:
                rows.append(first_rows(difference, at_most))
    notes = (f"{name} contradicts most nodes about LTZ and was not believed." for name in outvoted)
    return replace(
        report,
        supply=state.supply,
        differences=tuple(differences),
        acknowledged=tuple(acknowledged),
        notes=(*report.notes, *notes),
    )


async def _read_chain(
    indexed: IndexedLtz, data_dir: Path, config: Path | None
) -> Mapping[str, LtzState]:
    """LTZ's state as each node shows it, by the node's name: one at least.

    A node that cannot show it is left out. Raises NodeUnavailable if none can.
    """
    if indexed.number < indexed.first_block:
        raise NodeUnavailable("the indexer has not read any block of LTZ yet")
    urls = resolve_chain_target(data_dir, config).rpc_urls
    states: dict[str, LtzState] = {}
    async with answering_nodes(urls, indexed.chain_id, indexed.genesis) as answering:
        faults = list(answering.faults)
        for name, rpc in answering.clients.items():
            try:
                states[name] = await ltz_state.read_state_at(
                    rpc, indexed.ltz, indexed.number, indexed.hash, indexed.words()
                )
            except NodeUnavailable as error:
                faults.append(f"{name}: {error.message}")
    if not states:
        raise NodeUnavailable(f"No node shows LTZ's state ({'; '.join(faults)})")
    return states


def _contradiction(states: Mapping[str, LtzState]) -> Disagreement:
    rows = tuple(
        DifferingRow(
            name,
            {
                "node": {
                    "ltz": whole_ltz(state.supply),
                    "usedReferences": sum(bits.bit_count() for bits in state.used.values()),
                }
            },
        )
        for name, state in states.items()
    )
    meaning = "nodes that show different states of LTZ after the same block: one of them lies"
    return Disagreement(_NODES, meaning, len(rows), rows)


async def _compare_with_chain(
    connection: Connection, indexed: IndexedLtz, state: LtzState
) -> list[Disagreement]:
    differences = []
    if state.supply != indexed.balances:
        sides = {
            "chain": {"ltz": whole_ltz(state.supply)},
            "balances": {"ltz": whole_ltz(indexed.balances)},
        }
        row = DifferingRow(f"block {indexed.number}", sides)
        meaning = "LTZ's total supply is not the sum of the balances"
        differences.append(Disagreement(_SUPPLY, meaning, 1, (row,)))
    only_chain, only_index = reference_differences(state.used, indexed.used)
    for kind, meaning, seqs in (
        (
            _USED,
            "references that are used on chain but have no mint in the index",
            only_chain,
        ),
        (_UNUSED, "mints in the index whose reference is not used on chain", only_index),
    ):
        if seqs:
            differences.append(await _describe_references(connection, kind, meaning, seqs))
    return differences


async def _describe_references(
    connection: Connection, kind: str, meaning: str, seqs: list[int]
) -> Disagreement:
    rewards = await books.rewards_by_seq(connection, seqs)
    rows = tuple(
        DifferingRow(f"seq {seq}", {"reward": {"id": rewards[seq]} if seq in rewards else None})
        for seq in seqs
    )
    return Disagreement(kind, meaning, len(seqs), rows)

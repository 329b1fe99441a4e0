"""`ltzd books acknowledge`: explains rows of the report, so that they are disagreements no more."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ltzd.cli.books import report as books_report
from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.errors import Misconfigured, Refused
from ltzd.store.books import acknowledgements, reconciliation

_ALL_ROWS = 1_000_000
_NEVER = frozenset({"supply_and_balances_differ", "nodes_contradict"})
"""Kinds whose row is another one after each block, or a node that lies."""
_LONGEST_REASON = 500


class Explanation(msgspec.Struct, frozen=True):
    """Rows of one kind, all of them if `every`, and why they are as they are."""

    kind: str
    subjects: tuple[str, ...]
    every: bool
    reason: str
    is_withdrawn: bool = False


def acknowledge(
    target: Target, data_dir: Path, config: Path | None, given: Explanation, *, as_json: bool
) -> None:
    """Raises Misconfigured, and Refused for a row that is no disagreement."""
    _refuse_malformed(given)
    done = asyncio.run(
        _withdraw(target, given)
        if given.is_withdrawn
        else _acknowledge(target, data_dir, config, given)
    )
    if as_json:
        print_json(done)
    else:
        print(_sentence(done), flush=True)


def _refuse_malformed(given: Explanation) -> None:
    if bool(given.subjects) == given.every:
        raise Misconfigured("Name the rows as `ltzd books` shows them, or give --all.")
    if given.is_withdrawn:
        return
    _refuse_unknown(given.kind)
    if given.kind in _NEVER:
        raise Misconfigured(f"{given.kind} cannot be acknowledged: its rows have no lasting ids.")
    if not given.reason.strip() or len(given.reason) > _LONGEST_REASON:
        raise Misconfigured(
            f"Give --reason in up to {_LONGEST_REASON} characters: `ltzd books` shows it to the "
            "next person."
        )


def _refuse_unknown(kind: str) -> None:
    known = sorted({*books_report.CHAIN_KINDS, *(check.kind for check in reconciliation.CHECKS)})
    if kind not in known:
        raise Misconfigured(
            f"{kind} is no kind of disagreement. The kinds are: {', '.join(known)}. Nothing "
            "changed."
        )


async def _acknowledge(
    target: Target, data_dir: Path, config: Path | None, given: Explanation
) -> dict[str, Any]:
    report = await books_report.read_report(target, data_dir, config, at_most=_ALL_ROWS)
    for note in report.notes:
        print_message(note)
    open_rows = [
        row.id for each in report.differences if each.kind == given.kind for row in each.rows
    ]
    explained = {
        row.id for each in report.acknowledged if each.kind == given.kind for row in each.rows
    }
    subjects = open_rows if given.every else list(given.subjects)
    unknown = [subject for subject in subjects if subject not in {*open_rows, *explained}]
    if unknown:
        raise Refused(f"{unknown[0]} is no {given.kind} in the books now. Nothing changed.")
    async with open_connection(target, "books acknowledge") as connection:
        added = await acknowledgements.add(connection, given.kind, subjects, given.reason.strip())
    return {"kind": given.kind, "acknowledged": added, "open": len(open_rows) - len(added)}


async def _withdraw(target: Target, given: Explanation) -> dict[str, Any]:
    subjects: Sequence[str] | None = None if given.every else given.subjects
    async with open_connection(target, "books acknowledge") as connection:
        withdrawn = await acknowledgements.withdraw(connection, given.kind, subjects)
    if not withdrawn:
        # Rows of an earlier version's kinds can be withdrawn.
        _refuse_unknown(given.kind)
    return {"kind": given.kind, "withdrawn": withdrawn}


def _sentence(done: dict[str, Any]) -> str:
    kind = done["kind"]
    if "withdrawn" in done:
        count = len(done["withdrawn"])
        return f"{count:,} rows of {kind} count as disagreements again."
    count, left = len(done["acknowledged"]), done["open"]
    rest = f"; {left:,} more of this kind disagree" if left else ""
    return f"{count:,} rows of {kind} are acknowledged{rest}. `ltzd books` lists them apart."

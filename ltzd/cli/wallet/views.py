"""`ltzd wallet list` and `ltzd wallet show`, as text or as JSON."""

import asyncio
from collections.abc import Sequence
from typing import Any

from rich.table import Column, Table

from ltzd.cli.output import plain_text, print_json, print_message, print_page
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.wallet.lookup import chain_of, find_work
from ltzd.store.operator import wallet_work
from ltzd.store.operator.wallet_work import WalletWork
from ltzd.store.operator.wallets import WalletState
from ltzd.values import checksummed, iso


def list_wallets(target: Target, *, everything: bool, as_json: bool) -> None:
    work = asyncio.run(_read_all(target))
    shown = [each for each in work if everything or not _is_over(each)]
    if as_json:
        print_json([as_row(each) for each in shown])
    elif shown:
        print_page(_table(shown))
    else:
        print_message("There is no wallet: name them in the settings, or add one.")
    if len(shown) < len(work):
        finished = len(work) - len(shown)
        print_message(f"Retired wallets that have finished: {finished}; --all lists them.")


def show(target: Target, wallet: str, *, as_json: bool) -> None:
    work = asyncio.run(_read(target, wallet))
    if as_json:
        print_json(as_row(work))
        return
    print_page(_page(work))
    print_message(_outlook(work))


async def _read_all(target: Target) -> list[WalletWork]:
    async with open_connection(target, "wallet list") as connection:
        return await wallet_work.list_work(connection, await chain_of(connection))


async def _read(target: Target, wallet: str) -> WalletWork:
    async with open_connection(target, "wallet show") as connection:
        return await find_work(connection, wallet)


def _is_over(work: WalletWork) -> bool:
    return work.row.state is WalletState.RETIRED and work.in_flight == 0


def as_row(work: WalletWork) -> dict[str, Any]:
    row = work.row
    return {
        "wallet": checksummed(row.wallet),
        "kind": row.kind,
        "state": row.state.value,
        "stateSince": iso(row.state_since),
        "reason": row.reason,
        "isDrained": work.is_drained,
        "pausedByHandSince": row.paused_at and iso(row.paused_at),
        "pauseReason": row.pause_reason,
        "signer": row.signer,
        "process": work.process,
        "servedAt": work.served_at and iso(work.served_at),
        "pausedFor": work.paused_for,
        "pausedSince": work.paused_since and iso(work.paused_since),
        "nextNonce": work.next_nonce,
        "inFlight": work.in_flight,
        "signed": work.signed,
        "published": work.published,
        "mined": work.mined,
        "oldestSeconds": None if work.oldest_seconds is None else round(work.oldest_seconds, 1),
        "addedAt": iso(row.added_at),
    }


def _table(work: Sequence[WalletWork]) -> Table:
    table = Table(
        Column("wallet", no_wrap=True),
        "kind",
        "state",
        Column("served by", overflow="fold"),
        Column("not final", justify="right"),
        "waits for",
        Column("key", overflow="fold"),
        box=None,
        padding=(0, 2, 0, 0),
    )
    for each in work:
        table.add_row(
            checksummed(each.row.wallet),
            each.row.kind,
            "drained" if each.is_drained else each.row.state.value,
            plain_text(each.process or "-"),
            str(each.in_flight),
            each.paused_for or "-",
            plain_text(_signer(each)),
        )
    return table


def _signer(work: WalletWork) -> str:
    """Where the key is, in one line."""
    signer = work.row.signer
    if signer is None:
        return "named by the settings"
    return ", ".join(f"{name} {signer[name]}" for name in signer)


def _page(work: WalletWork) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    row = work.row
    lines = {
        "wallet": checksummed(row.wallet),
        "kind": row.kind,
        "state": f"{row.state.value} since {iso(row.state_since)}"
        + (f" ({row.reason})" if row.reason else ""),
        "key": _signer(work),
        "served by": work.process or "no process",
        "waits for": "-"
        if work.paused_for is None
        else f"{work.paused_for}, since {work.paused_since and iso(work.paused_since)}",
        "next nonce": "-" if work.next_nonce is None else str(work.next_nonce),
        "not final": f"{work.in_flight} ({work.signed} signed, {work.published} published, "
        f"{work.mined} mined)"
        + ("" if work.oldest_seconds is None else f", the oldest for {work.oldest_seconds:.0f} s"),
        "added": iso(row.added_at),
    }
    if row.paused_at is not None:
        lines["paused"] = f"since {iso(row.paused_at)}: {row.pause_reason}"
    for name, text in lines.items():
        table.add_row(name, plain_text(text))
    return table


def _outlook(work: WalletWork) -> str:
    """A sentence about what happens next, and what a person can do."""
    name = checksummed(work.row.wallet)
    match work.row.state:
        case WalletState.ACTIVE if work.process is None:
            return (
                "No process serves it: start one of role operator that can open its key, or read "
                "the log `wallet.not_served`."
            )
        case WalletState.ACTIVE:
            return "It takes new work."
        case WalletState.DRAINING if work.is_drained:
            return f"It is drained: `ltzd wallet retire {name}` ends it for good."
        case WalletState.DRAINING if work.process is None and work.in_flight:
            return (
                "No process serves it, so that its transactions are not followed: start one that "
                "can open its key, or retire it with --lost."
            )
        case WalletState.DRAINING:
            return "It signs nothing new, and is drained once everything that it signed is final."
        case WalletState.RETIRED if work.in_flight:
            return "It signs nothing; a lane without its key watches what it signed."
    return "It signs nothing, and everything that it signed is final."

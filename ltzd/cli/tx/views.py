"""`ltzd tx list` and `ltzd tx show`, as tables or as JSON."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich.console import Group
from rich.table import Column, Table

from ltzd.cli.output import plain_text, print_json, print_message, print_page
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.tx.lookup import find_transaction
from ltzd.cli.tx.texts import counted, fees_text, remarks_of, work_of
from ltzd.cli.wallet.lookup import parse_address
from ltzd.rules.operator.fees import GWEI
from ltzd.rules.operator.requests import Action, RequestOutcome
from ltzd.rules.operator.transactions import State
from ltzd.store.operator import transaction_views
from ltzd.store.operator.requests import TransactionRequest
from ltzd.store.operator.transaction_views import OPEN, TransactionSummary, TransactionView
from ltzd.values import Address, checksummed, hex_of, iso, iso_or_none


class Selection(msgspec.Struct, frozen=True):
    wallet: str | None
    state: str
    is_stuck: bool
    limit: int

    def address(self) -> Address | None:
        """Raises Misconfigured."""
        return None if self.wallet is None else parse_address(self.wallet)

    def states(self) -> Sequence[str]:
        if self.state == "open":
            return OPEN
        return [state.value for state in State] if self.state == "all" else [self.state]


def list_transactions(target: Target, selection: Selection, *, as_json: bool) -> None:
    """Raises Misconfigured."""
    listed = asyncio.run(_list(target, selection))
    if as_json:
        print_json({"transactions": list(map(summary_object, listed))})
    elif listed:
        print_page(_table(listed))
    else:
        print_message("No transaction matches.")


async def _list(target: Target, selection: Selection) -> list[TransactionSummary]:
    wallet = selection.address()
    async with open_connection(target, "tx list") as connection:
        return await transaction_views.list_transactions(
            connection,
            wallet=wallet,
            states=selection.states(),
            is_stuck=selection.is_stuck,
            limit=selection.limit,
        )


def show(target: Target, text: str, *, as_json: bool) -> None:
    """Raises Misconfigured, NotFound."""
    view = asyncio.run(_find(target, text))
    if as_json:
        print_json(view_object(view))
    else:
        print_page(_page(view))


async def _find(target: Target, text: str) -> TransactionView:
    async with open_connection(target, "tx show") as connection:
        return await find_transaction(connection, text)


# JSON


def summary_object(tx: TransactionSummary) -> dict[str, Any]:
    return {
        "id": tx.id,
        "chainId": tx.chain_id,
        "kind": tx.kind,
        "wallet": checksummed(tx.wallet),
        "nonce": tx.nonce,
        "state": tx.state,
        "does": work_of(tx),
        "rewards": tx.rewards,
        "rewardAmount": tx.ltz,
        "relay": tx.relay,
        "function": tx.function,
        "user": None if tx.user is None else checksummed(tx.user),
        "to": checksummed(tx.to),
        "gasLimit": tx.gas_limit,
        "valueWei": str(tx.value_wei),
        "succeeded": tx.succeeded,
        "isCancelled": tx.is_cancelled,
        "hasSelfTransfer": tx.has_self_transfer,
        "blockNumber": tx.block_number,
        "blockHash": None if tx.block_hash is None else hex_of(tx.block_hash),
        "gasUsed": tx.gas_used,
        "newestHash": hex_of(tx.newest_hash),
        "attempts": tx.attempts,
        "maxFeePerGasWei": tx.max_fee_per_gas,
        "maxPriorityFeePerGasWei": tx.max_priority_fee_per_gas,
        "ageSeconds": round(tx.age_seconds, 1),
        "isStuck": tx.is_stuck,
        "behind": tx.ahead,
        "oldestTransaction": tx.oldest,
        "hasOpenRequest": tx.has_request,
        "createdAt": iso(tx.created_at),
        "publishedAt": iso_or_none(tx.published_at),
        "minedAt": iso_or_none(tx.mined_at),
        "settledAt": iso_or_none(tx.settled_at),
    }


def view_object(view: TransactionView) -> dict[str, Any]:
    return summary_object(view.summary) | {
        "attempts": [
            {
                "hash": hex_of(attempt.hash),
                "maxFeePerGasWei": attempt.max_fee_per_gas,
                "maxPriorityFeePerGasWei": attempt.max_priority_fee_per_gas,
                "isLegacy": attempt.is_legacy,
                "isSelfTransfer": attempt.is_self_transfer,
                "isMined": attempt.is_mined,
                "createdAt": iso(attempt.created_at),
                "publishedAt": iso_or_none(attempt.published_at),
            }
            for attempt in view.attempts
        ],
        "waiting": [
            {
                "reward": str(reward.id),
                "brandId": hex_of(reward.brand_id),
                "wallet": checksummed(reward.wallet),
                "rewardAmount": reward.ltz,
            }
            for reward in view.rewards
        ],
        "requests": list(map(request_object, view.requests)),
        "events": [{"at": iso(at), "what": what} for at, what in events_of(view)],
    }


def request_object(request: TransactionRequest) -> dict[str, Any]:
    return {
        "id": request.id,
        "action": request.action.value,
        "requestedAt": iso(request.requested_at),
        "expiresAt": iso_or_none(request.expires_at),
        "handledAt": iso_or_none(request.handled_at),
        "outcome": None if request.outcome is None else request.outcome.value,
        "attempt": None if request.attempt is None else hex_of(request.attempt),
    }


# Tables


def _table(listed: Sequence[TransactionSummary]) -> Table:
    table = Table(
        Column("id", justify="right", no_wrap=True),
        Column("lane", no_wrap=True),
        Column("wallet", min_width=9),  # truncated on a narrow terminal, unlike the numbers
        Column("nonce", justify="right", no_wrap=True),
        Column("state", no_wrap=True),
        Column("age", justify="right", no_wrap=True),
        Column("attempts", justify="right", no_wrap=True),
        Column("gwei", justify="right", no_wrap=True),
        Column("does", overflow="fold"),
        Column("", overflow="fold"),
        box=None,
        padding=(0, 2, 0, 0),
    )
    for tx in listed:
        table.add_row(
            str(tx.id),
            tx.kind,
            checksummed(tx.wallet),
            str(tx.nonce),
            tx.state,
            _age(tx.age_seconds),
            str(tx.attempts),
            f"{tx.max_fee_per_gas / GWEI:g}",
            plain_text(work_of(tx)),
            ", ".join(remarks_of(tx)),
        )
    return table


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _page(view: TransactionView) -> Group:
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, text in _lines(view):
        facts.add_row(name, plain_text(text))
    events = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for at, what in events_of(view):
        events.add_row(iso(at), plain_text(what))
    return Group(facts, "", events)


def _lines(view: TransactionView) -> Iterator[tuple[str, str]]:
    tx = view.summary
    yield "transaction", f"{tx.id}, {tx.kind}"
    yield "signed by", f"{checksummed(tx.wallet)}, nonce {tx.nonce}, chain {tx.chain_id}"
    yield "state", ", ".join([tx.state, *remarks_of(tx)])
    if tx.block_number is not None and tx.block_hash is not None:
        yield "block", f"{tx.block_number} {hex_of(tx.block_hash)}"
    if tx.gas_used is not None:
        yield "gas used", str(tx.gas_used)
    yield "does", work_of(tx)
    yield "call", f"{checksummed(tx.to)}, {tx.data_bytes} bytes, gas limit {tx.gas_limit}"
    if tx.is_unmined and tx.ahead:
        older = counted(tx.ahead, "older nonce")
        oldest = f"transaction {tx.oldest} (nonce {tx.oldest_nonce})"
        yield "behind", f"{older} of the wallet, which must be mined first; the oldest is {oldest}"
    for attempt in view.attempts:
        mined = ", mined" if attempt.is_mined else ""
        name = "self-transfer" if attempt.is_self_transfer else "attempt"
        yield name, f"{hex_of(attempt.hash)}{mined}"
        fees = (attempt.max_fee_per_gas, attempt.max_priority_fee_per_gas)
        yield "", fees_text(*fees, is_legacy=attempt.is_legacy)
    yield from _waiting(view)


def _waiting(view: TransactionView) -> Iterator[tuple[str, str]]:
    tx = view.summary
    if tx.kind == "relay" and tx.relay is not None:
        yield "waits", f"relay {tx.relay} of {checksummed(tx.user or Address(bytes(20)))}"
    for reward in view.rewards:
        brand = hex_of(reward.brand_id)
        yield (
            "waits",
            f"reward {reward.id}: {reward.ltz} LTZ to {checksummed(reward.wallet)}, brand {brand}",
        )
    if tx.rewards > len(view.rewards):
        yield "", f"and {counted(tx.rewards - len(view.rewards), 'more reward')}"


def events_of(view: TransactionView) -> list[tuple[datetime, str]]:
    """What happened, in the order of time."""
    tx = view.summary
    events: list[tuple[datetime, str]] = []
    for number, attempt in enumerate(view.attempts):
        fees = fees_text(
            attempt.max_fee_per_gas, attempt.max_priority_fee_per_gas, is_legacy=attempt.is_legacy
        )
        what = "self-transfer signed" if attempt.is_self_transfer else "signed"
        again = "" if number == 0 or attempt.is_self_transfer else " again, with higher fees"
        events.append((attempt.created_at, f"{what}{again}: {fees}"))
        if attempt.published_at is not None:
            events.append((attempt.published_at, f"a node took {hex_of(attempt.hash)}"))
    for request in view.requests:
        events.append((request.requested_at, f"a person asked: {_ACTIONS[request.action]}"))
        if request.handled_at is not None and request.outcome is not None:
            events.append((request.handled_at, _handled(request)))
    if tx.mined_at is not None:
        events.append((tx.mined_at, f"seen mined in block {tx.block_number}"))
    if tx.settled_at is not None:
        events.append((tx.settled_at, f"settled: {tx.state}"))
    return sorted(events, key=lambda event: event[0])


_ACTIONS = {Action.SPEED_UP: "speed-up", Action.CANCEL: "cancel"}


def _handled(request: TransactionRequest) -> str:
    action = _ACTIONS[request.action]
    if request.outcome is RequestOutcome.DONE and request.attempt is not None:
        return f"{action} done by {hex_of(request.attempt)}"
    assert request.outcome is not None
    return f"{action} not done: {request.outcome.value}"

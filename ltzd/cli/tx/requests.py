"""`ltzd tx speed-up` and `ltzd tx cancel`: ask the lane that holds the wallet, and wait.

The command writes a request, which the lane carries out within a second. A request without an
outcome after the wait is withdrawn, so that no lane does it later when nobody expects it.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import asyncpg
import msgspec
import typer

from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.tx.lookup import find_transaction
from ltzd.cli.tx.texts import counted, fees_text, name_of, work_of
from ltzd.cli.tx.views import request_object, summary_object
from ltzd.errors import Refused, Unavailable
from ltzd.rules.operator.requests import Action, RequestOutcome
from ltzd.store.database import Connection
from ltzd.store.operator import lane_views, requests
from ltzd.store.operator.lane_views import LaneView
from ltzd.store.operator.requests import TransactionRequest
from ltzd.store.operator.transaction_views import TransactionSummary, TransactionView
from ltzd.store.operator.wallets import WalletState
from ltzd.values import checksummed, hex_of, iso

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 5.0
"""The life of a request beyond the wait of its command, in case the command dies."""
_REPEATED_SECONDS = 15.0
"""A speed-up that was done within this time is not done again without `--again`."""
_LOCK_MILLISECONDS = 3000


class Request(msgspec.Struct, frozen=True):
    """`wait_seconds` bounds the wait for the lane; `leaves`: the request stays open after it."""

    action: Action
    transaction: str
    wait_seconds: float
    leaves: bool = False
    again: bool = False
    anyway: bool = False


class Answer(msgspec.Struct, frozen=True):
    """The transaction after the request, its lane, and how the request ended."""

    view: TransactionView
    lane: LaneView | None
    request: TransactionRequest
    is_new: bool

    @property
    def is_done(self) -> bool:
        return self.request.outcome is RequestOutcome.DONE


def ask(target: Target, request: Request, *, as_json: bool) -> None:
    """Exits with 1 if the lane did not do it.

    Raises Misconfigured, NotFound, Refused, Unavailable.
    """
    answer = asyncio.run(_ask(target, request))
    if as_json:
        print_json(_as_object(answer))
    for sentence in _sentences(answer, request):
        print_message(sentence)
    if not answer.is_done:
        raise typer.Exit(1)


async def _ask(target: Target, request: Request) -> Answer:
    async with open_connection(target, f"tx {request.action.value}") as connection:
        # A frozen process may hold a request's row; the command must not wait for it for ever.
        await connection.execute(f"SET lock_timeout = {_LOCK_MILLISECONDS}")
        view = await find_transaction(connection, request.transaction)
        lane = await _lane_of(connection, view.summary)
        _precheck(request, view.summary, lane)
        lives = None if request.leaves else request.wait_seconds + _GRACE_SECONDS
        is_repeatable = request.action is Action.SPEED_UP and request.again
        try:
            async with connection.transaction():
                written, is_new = await requests.ask(
                    connection,
                    view.summary.id,
                    request.action,
                    expires_in_seconds=lives,
                    joins_seconds=0.0 if is_repeatable else _REPEATED_SECONDS,
                )
        except asyncpg.LockNotAvailableError as error:
            raise Unavailable(
                f"A process is carrying out a request for {name_of(view.summary)} at this moment, "
                f"and does not finish: see `ltzd tx show {view.summary.id}` and `ltzd lane list`. "
                "Nothing changed."
            ) from error
        try:
            ended = await _wait(connection, written, request.wait_seconds)
        except asyncio.CancelledError:
            if not request.leaves:
                await _withdraw(connection, written)
            print_message(f"See what became of the request: `ltzd tx show {view.summary.id}`.")
            raise
        if ended.outcome is None and not request.leaves:
            ended = await _withdraw(connection, ended)
        view = await find_transaction(connection, str(view.summary.id))
        return Answer(view, await _lane_of(connection, view.summary), ended, is_new)


async def _wait(
    connection: Connection, request: TransactionRequest, seconds: float
) -> TransactionRequest:
    """Return the request with its outcome, or without one after these seconds."""
    deadline = time.monotonic() + seconds
    while request.outcome is None and time.monotonic() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
        request = await _again(connection, request)
    return request


async def _withdraw(connection: Connection, request: TransactionRequest) -> TransactionRequest:
    """Withdraw it, unless a lane has carried it out, or is doing so at this moment."""
    try:
        await requests.withdraw(connection, request.id)
    except asyncpg.LockNotAvailableError:
        return request
    return await _again(connection, request)


async def _again(connection: Connection, request: TransactionRequest) -> TransactionRequest:
    again = await requests.find(connection, request.id)
    assert again is not None, "requests are never deleted"
    return again


async def _lane_of(connection: Connection, tx: TransactionSummary) -> LaneView | None:
    views = await lane_views.list_lanes(connection, wallet=tx.wallet)
    return next((view for view in views if view.chain_id == tx.chain_id), None)


def _precheck(request: Request, tx: TransactionSummary, lane: LaneView | None) -> None:
    """Refuse what no lane could do, before anything is written. Raises Refused."""
    if not tx.is_unmined:
        raise Refused(f"{name_of(tx)} {_too_late(tx)}. Nothing changed.")
    if lane is not None and lane.state is WalletState.RETIRED:
        raise Refused(
            f"{name_of(tx)} cannot be replaced: its wallet is retired, so nothing is signed with "
            "it. What it has signed is published again until it is final, or proven never to be "
            "mined. Nothing changed."
        )
    if tx.ahead and not request.anyway:
        raise Refused(
            f"{name_of(tx)} waits behind {counted(tx.ahead, 'older nonce')} of its wallet, and a "
            "higher price does not help it before these are mined. Speed up the oldest first: "
            f"ltzd tx speed-up {tx.oldest} (nonce {tx.oldest_nonce}); or give --anyway. "
            "Nothing changed."
        )


def _too_late(tx: TransactionSummary) -> str:
    if tx.state == "mined":
        how = "its self-transfer is" if tx.is_cancelled else "it is"
        return f"is too late to replace: {how} in block {tx.block_number}, and not final yet"
    return f"is settled: {tx.state}, since {iso(tx.settled_at)}" if tx.settled_at else "is settled"


# Output


def _as_object(answer: Answer) -> dict[str, Any]:
    lane = answer.lane
    return {
        "isDone": answer.is_done,
        "isNew": answer.is_new,
        "request": request_object(answer.request),
        "transaction": summary_object(answer.view.summary),
        "holder": None if lane is None else lane.holder,
        "pausedFor": None if lane is None else lane.paused_for,
    }


def _sentences(answer: Answer, request: Request) -> Iterator[str]:
    tx = answer.view.summary
    if not answer.is_done:
        yield f"{name_of(tx)} is unchanged: {_why_not(answer, request)}"
        return
    if not answer.is_new:
        yield (
            f"{name_of(tx)}: the same request was carried out before, at "
            f"{iso(answer.request.handled_at or answer.request.requested_at)}."
        )
    attempt = next(each for each in answer.view.attempts if each.hash == answer.request.attempt)
    fees = fees_text(
        attempt.max_fee_per_gas, attempt.max_priority_fee_per_gas, is_legacy=attempt.is_legacy
    )
    if request.action is Action.SPEED_UP:
        what = "its self-transfer" if attempt.is_self_transfer else "it"
        yield f"{name_of(tx)} is sped up: {what} pays {fees}, as {hex_of(attempt.hash)}."
        yield from _after_speed_up(tx)
    else:
        yield (
            f"{name_of(tx)} is being cancelled: a self-transfer with its nonce pays {fees}, as "
            f"{hex_of(attempt.hash)}."
        )
        yield from _after_cancel(tx)


def _after_speed_up(tx: TransactionSummary) -> Iterator[str]:
    yield (
        f"  What may still happen: any of its {tx.attempts} attempts may be mined, and one at "
        f"most: {work_of(tx)} happens once. The lane raises its fees again by itself, up to the "
        "cap."
    )
    yield from _behind(tx)


def _after_cancel(tx: TransactionSummary) -> Iterator[str]:
    yield (
        "  What may still happen: a node that has the older bytes may mine these instead; then "
        f"the work is done as usual ({work_of(tx)})."
    )
    yield from _behind(tx)
    if tx.kind == "mint":
        rewards = counted(tx.rewards, "reward")
        yield (
            f"  Once the self-transfer is final, the queue gets {rewards} back under the same "
            "references, and a new transaction mints them. If they must not be minted now, stop "
            "that first: `ltzd brand pause BRAND` holds one brand's rewards back, "
            "`ltzd lane pause --kind mint --reason TEXT` all."
        )
    elif tx.kind == "relay":
        yield (
            "  Once the self-transfer is final, the relay fails (TRANSACTION_FAILED); until then "
            "it is pending, and its user's turn stays taken. It is not sent again."
        )
    else:
        yield "  Once the self-transfer is final, the lane may send a new transaction of this kind."


def _behind(tx: TransactionSummary) -> Iterator[str]:
    if tx.ahead:
        yield (
            f"  {counted(tx.ahead, 'older nonce')} of the wallet must be mined before it; the "
            f"oldest is transaction {tx.oldest} (nonce {tx.oldest_nonce})."
        )


def _why_not(answer: Answer, request: Request) -> str:
    outcome = answer.request.outcome
    if outcome is None:
        return _still_open(answer, request)
    if outcome in {RequestOutcome.WITHDRAWN, RequestOutcome.EXPIRED}:
        return (
            f"{_who_serves(answer.lane)}, so nothing was done within {request.wait_seconds:g} s. "
            "The request is withdrawn: no lane will do it later."
        )
    return _REASONS[outcome].format(id=answer.view.summary.id)


def _still_open(answer: Answer, request: Request) -> str:
    serves = _who_serves(answer.lane)
    if request.leaves:
        return (
            f"{serves}. The request stays: the lane does it as soon as it is served, and "
            f"`ltzd tx show {answer.view.summary.id}` shows the outcome. To withdraw it, give the "
            "command again without --leave."
        )
    return (
        f"{serves}, and a process holds the request at this moment: "
        f"`ltzd tx show {answer.view.summary.id}` shows its outcome. {_lapse(answer)}"
    )


def _lapse(answer: Answer) -> str:
    if answer.request.expires_at is None:
        return "The request does not lapse by itself."
    return f"The request lapses at {iso(answer.request.expires_at)}."


def _who_serves(lane: LaneView | None) -> str:
    if lane is None or lane.holder is None:
        return "no process serves the lane of its wallet now"
    waits = f", which waits for: {lane.paused_for}" if lane.paused_for else ""
    return f"{lane.holder} serves the lane of {checksummed(lane.wallet)}{waits}"


_REASONS = {
    RequestOutcome.MINED: "it was mined meanwhile, or its nonce is used: see `ltzd tx show {id}`.",
    RequestOutcome.CANCELLED: "a self-transfer with its nonce is on its way already. "
    "`ltzd tx speed-up {id}` raises the self-transfer's fees.",
    RequestOutcome.FEES: "a tenth more than its newest attempt, or today's price, is above the cap "
    "(max_fee_gwei). Raise the cap and restart, or wait: its bytes are published again meanwhile.",
    RequestOutcome.FUNDS: "the wallet cannot cover the worst case of an attempt with higher fees. "
    "Send it gas money, then repeat.",
    RequestOutcome.REFUSED: "nodes refuse its bytes for good at any price, or blocks hold less gas "
    "than it needs. The lane frees its nonce by a self-transfer by itself.",
    RequestOutcome.SIGNER: "the signer of its wallet did not sign. Repeat when it does.",
    RequestOutcome.NO_KEY: "its wallet is retired, so nothing is signed with it.",
    RequestOutcome.DONE: "",
}

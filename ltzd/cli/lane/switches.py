"""`ltzd lane pause` and `ltzd lane resume`: whether a lane may sign new work.

The change is one commit for all lanes that are named. The command then waits a few seconds for the
processes that serve them to say that it is in force.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.wallet.lookup import parse_address
from ltzd.errors import Misconfigured, NotFound
from ltzd.operator.policy import BY_HAND, DRAINING
from ltzd.store.database import Connection
from ltzd.store.operator import lane_views, wallets
from ltzd.store.operator.lane_views import LaneView
from ltzd.store.operator.wallets import WalletState
from ltzd.values import Address, checksummed, iso, iso_or_none

_IN_FORCE_SECONDS = 3.0
_POLL_SECONDS = 0.1
_LONGEST_REASON = 500


class Selection(msgspec.Struct, frozen=True):
    """The lanes that a command is for, as its options name them."""

    wallets: tuple[str, ...]
    kind: str | None
    every: bool

    def addresses(self) -> list[Address]:
        """Raises Misconfigured for a malformed address, and for no lane or all and some."""
        if not (self.wallets or self.kind or self.every):
            raise Misconfigured("Name the lanes: their wallets, --kind, or --all.")
        if self.every and (self.wallets or self.kind):
            raise Misconfigured("--all: give it alone, or name wallets or --kind without it.")
        return [parse_address(text) for text in self.wallets]


class Switched(msgspec.Struct, frozen=True):
    """A lane before the change and after it. `is_in_force` is None if no process serves it."""

    before: LaneView
    after: LaneView
    is_in_force: bool | None


def pause(target: Target, selection: Selection, reason: str, *, as_json: bool) -> None:
    """Raises Misconfigured, NotFound."""
    if not reason.strip() or len(reason) > _LONGEST_REASON:
        raise Misconfigured(
            f"Give --reason in up to {_LONGEST_REASON} characters: `ltzd lane list` shows it to "
            "the next person."
        )
    _switch(target, selection, reason.strip(), as_json=as_json)


def resume(target: Target, selection: Selection, *, as_json: bool) -> None:
    """Raises Misconfigured, NotFound."""
    _switch(target, selection, None, as_json=as_json)


def _switch(target: Target, selection: Selection, reason: str | None, *, as_json: bool) -> None:
    switched = asyncio.run(_run(target, selection, reason))
    if as_json:
        print_json({"lanes": list(map(_as_object, switched))})
    for each in switched:
        for sentence in _sentences(each, reason):
            print_message(sentence)


async def _run(target: Target, selection: Selection, reason: str | None) -> list[Switched]:
    command = "lane resume" if reason is None else "lane pause"
    async with open_connection(target, command) as connection:
        lanes = await _selected(connection, selection)
        async with connection.transaction():
            for lane in lanes:
                # A lane that has never been registered: its key is in the settings.
                await wallets.add(connection, lane.chain_id, lane.wallet, lane.kind)
                await wallets.set_paused(connection, lane.chain_id, lane.wallet, reason)
        in_force = await _wait_until_in_force(connection, lanes, is_paused=reason is not None)
        return [
            Switched(lane, await _again(connection, lane), in_force.get(lane.wallet))
            for lane in lanes
        ]


async def _selected(connection: Connection, selection: Selection) -> list[LaneView]:
    named = selection.addresses()
    lanes = await lane_views.list_lanes(connection, kind=selection.kind)
    unknown = [wallet for wallet in named if wallet not in {lane.wallet for lane in lanes}]
    if unknown or not lanes:
        known = ", ".join(f"{checksummed(lane.wallet)} ({lane.kind})" for lane in lanes) or "none"
        what = "There is no lane" if not unknown else f"{checksummed(unknown[0])} has no lane"
        raise NotFound(f"{what}. Known are: {known}. Nothing changed.")
    return [lane for lane in lanes if not named or lane.wallet in named]


async def _wait_until_in_force(
    connection: Connection, lanes: Sequence[LaneView], *, is_paused: bool
) -> Mapping[Address, bool]:
    """Whether each lane's holder follows the change by now; a lane without holder is missing."""
    deadline = time.monotonic() + _IN_FORCE_SECONDS
    while True:
        views = [await _again(connection, lane) for lane in lanes]
        in_force = {
            view.wallet: _follows(view, is_paused=is_paused)
            for view in views
            if view.holder is not None and view.state is not WalletState.RETIRED
        }
        if all(in_force.values()) or time.monotonic() >= deadline:
            return in_force
        await asyncio.sleep(_POLL_SECONDS)


def _follows(view: LaneView, *, is_paused: bool) -> bool:
    if is_paused:
        return view.paused_for in {BY_HAND, DRAINING}
    return view.paused_for != BY_HAND


async def _again(connection: Connection, lane: LaneView) -> LaneView:
    views = await lane_views.list_lanes(connection, wallet=lane.wallet)
    return next(view for view in views if view.chain_id == lane.chain_id)


def _as_object(each: Switched) -> dict[str, Any]:
    after = each.after
    return {
        "chainId": after.chain_id,
        "wallet": checksummed(after.wallet),
        "kind": after.kind,
        "state": after.state.value,
        "changed": each.before.is_by_hand != after.is_by_hand,
        "pausedByHandSince": iso_or_none(after.by_hand_since),
        "pausedByHandReason": after.by_hand_reason,
        "inForce": each.is_in_force,
        "holder": after.holder,
        "inFlight": after.unmined,
    }


def _sentences(each: Switched, reason: str | None) -> Iterator[str]:
    lane, before = each.after, each.before
    name = f"The {lane.kind} lane of {checksummed(lane.wallet)}"
    if lane.is_by_hand != (reason is not None):
        change = "resumed" if reason else "paused"
        yield f"{name} was {change} by another command meanwhile: see `ltzd lane list`."
        return
    if reason is None:
        if before.by_hand_since is None:
            yield f"{name} is not paused by hand: nothing changes."
            return
        yield f"{name} is resumed: queued work is signed again."
    else:
        since = "" if before.by_hand_since is None else f", since {iso(before.by_hand_since)}"
        again = "still " if since else ""
        yield f"{name} is {again}paused by hand{since}: it signs no new work."
        yield (
            f"  {lane.unmined} of its transactions are in flight: they are still published, "
            "replaced and watched until they are final. A restart does not end the pause."
        )
        yield f"  {_CONSEQUENCES.get(lane.kind, '')}".rstrip()
    if lane.state is not WalletState.RETIRED:
        yield f"  {_in_force(each)}"
    if lane.state is not WalletState.ACTIVE:
        yield f"  Its wallet is {lane.state.value}, so it signs no new work either way."
    elif reason is None and lane.paused_for is not None:
        yield f"  It still waits for another reason: {lane.paused_for}."


_CONSEQUENCES = {
    "mint": "Rewards are accepted and queued; other mint lanes, if there are any, go on minting.",
    "relay": "Other relay lanes continue; without any, /relay answers 503 after a minute and "
    "withdraws the relay.",
    "treasury": "No wallet is filled meanwhile.",
}


def _in_force(each: Switched) -> str:
    match each.is_in_force:
        case True:
            return f"In force: {each.after.holder} follows it."
        case False:
            return (
                f"Written, but {each.after.holder} has not said yet that it follows: look again "
                "with `ltzd lane list`."
            )
        case None:
            return "No process serves the lane now; the process that does next will follow it."

"""`ltzd lane list`: prints the lanes, and what a node tells of their wallets."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Column, Table

from ltzd.chain.node.node import Node
from ltzd.chain.node.view import ChainView
from ltzd.cli.command_node import first_answering
from ltzd.cli.output import plain_text, print_json, print_message, print_page
from ltzd.cli.targets import Target, open_connection
from ltzd.errors import NodeUnavailable
from ltzd.store.operator import lane_views
from ltzd.store.operator.lane_views import LaneView
from ltzd.store.operator.wallets import WalletState
from ltzd.values import Address, checksummed, iso, iso_or_none

_NODE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class WalletOnChain:
    """A wallet as of the node's newest block: the nonces that it has used, and its balance."""

    nonce: int
    balance_wei: int


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """`fault` says why `wallets` is empty although a node was asked."""

    wallets: dict[Address, WalletOnChain]
    fault: str | None = None


def list_lanes(target: Target, kind: str | None, urls: Sequence[str], *, as_json: bool) -> None:
    lanes, answer = asyncio.run(_read(target, kind, urls))
    if answer.fault is not None:
        print_message(f"Nonces and balances on chain are left out: {answer.fault}")
    if as_json:
        print_json({"lanes": [as_object(lane, answer.wallets) for lane in lanes]})
    elif lanes:
        print_page(_table(lanes, answer.wallets))
        for sentence in _remarks(lanes, answer.wallets):
            print_message(sentence)
    else:
        print_message(
            "There is no lane yet: a process with the role operator makes one for each wallet."
        )


async def _read(
    target: Target, kind: str | None, urls: Sequence[str]
) -> tuple[list[LaneView], NodeAnswer]:
    async with open_connection(target, "lane list") as connection:
        lanes = await lane_views.list_lanes(connection, kind=kind)
    return lanes, await _ask_node(urls, lanes)


async def _ask_node(urls: Sequence[str], lanes: Sequence[LaneView]) -> NodeAnswer:
    """Ask one node about the wallets of its chain. A node that is away must not hide the lanes."""
    if not urls or not lanes:
        return NodeAnswer({})
    try:
        async with asyncio.timeout(_NODE_SECONDS), first_answering(urls) as rpc:
            node = Node(rpc)
            chain_id = await node.chain_id()
            view = await ChainView.newest(node)
            return NodeAnswer(
                {
                    lane.wallet: WalletOnChain(
                        await view.nonce(lane.wallet), await view.balance(lane.wallet)
                    )
                    for lane in lanes
                    if lane.chain_id == chain_id
                }
            )
    except NodeUnavailable as error:
        return NodeAnswer({}, error.message)
    except TimeoutError:
        return NodeAnswer({}, f"The node did not answer within {_NODE_SECONDS:.0f} s")


def as_object(lane: LaneView, wallets: dict[Address, WalletOnChain]) -> dict[str, Any]:
    """The balance is in wei, as text: JavaScript does not read such numbers exactly."""
    on_chain = wallets.get(lane.wallet)
    return {
        "chainId": lane.chain_id,
        "wallet": checksummed(lane.wallet),
        "kind": lane.kind,
        "state": lane.state.value,
        "holder": lane.holder,
        "epoch": lane.epoch,
        "nextNonce": lane.next_nonce,
        "nonceOnChain": None if on_chain is None else on_chain.nonce,
        "balanceWei": None if on_chain is None else str(on_chain.balance_wei),
        "inFlight": lane.unmined,
        "mined": lane.mined,
        "oldestTransaction": lane.oldest,
        "oldestSeconds": None if lane.oldest_seconds is None else round(lane.oldest_seconds, 1),
        "pausedFor": lane.paused_for,
        "pausedSince": iso_or_none(lane.paused_since),
        "pausedByHandSince": iso_or_none(lane.by_hand_since),
        "pausedByHandReason": lane.by_hand_reason,
    }


def _table(lanes: Sequence[LaneView], wallets: dict[Address, WalletOnChain]) -> Table:
    numbers = ("epoch", "next nonce", "on chain", "in flight", "mined", "oldest", "coin")
    table = Table(
        Column("lane", no_wrap=True),
        Column("wallet", min_width=9),  # truncated on a narrow terminal, unlike the numbers
        "state",
        Column("holder", overflow="fold"),
        *(Column(title, no_wrap=True, justify="right") for title in numbers),
        Column("waits for", overflow="fold"),
        box=None,
        padding=(0, 2, 0, 0),
    )
    for lane in lanes:
        on_chain = wallets.get(lane.wallet)
        table.add_row(
            lane.kind,
            checksummed(lane.wallet),
            lane.state.value,
            plain_text(lane.holder or "-"),
            _dash(lane.epoch),
            _dash(lane.next_nonce),
            _dash(on_chain and on_chain.nonce),
            str(lane.unmined),
            str(lane.mined),
            "-" if lane.oldest_seconds is None else f"{lane.oldest_seconds:.0f} s",
            "-" if on_chain is None else f"{on_chain.balance_wei / 10**18:.4f}",
            plain_text(_waits_for(lane)),
        )
    return table


def _waits_for(lane: LaneView) -> str:
    if lane.by_hand_since is not None:
        return f"by_hand since {iso(lane.by_hand_since)}: {lane.by_hand_reason}"
    if lane.paused_for is not None and lane.paused_since is not None:
        return f"{lane.paused_for} since {iso(lane.paused_since)}"
    return "-"


def _remarks(lanes: Sequence[LaneView], wallets: dict[Address, WalletOnChain]) -> Iterator[str]:
    """What a person should look into; nonces of a retired wallet are its watcher's affair."""
    for lane in lanes:
        if lane.state is WalletState.RETIRED:
            continue
        name = f"The {lane.kind} lane of {checksummed(lane.wallet)}"
        if lane.holder is None:
            yield (
                f"{name} is served by no process: none runs, or the lane is stopped, and "
                "`ltzd status` says why."
            )
        on_chain = wallets.get(lane.wallet)
        known = lane.next_nonce
        if on_chain is not None and known is not None and on_chain.nonce > known:
            yield (
                f"{name} has used {on_chain.nonce} nonces on chain, the database knows {known}: "
                "another program signs with its key, or the database is an old copy."
            )


def _dash(value: object) -> str:
    return "-" if value is None else str(value)

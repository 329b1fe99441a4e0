"""`ltzd lane list`: prints the lanes, and what the nodes tell of their wallets."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.table import Column, Table

from ltzd.chain.node.answers.typed import Account
from ltzd.chain.node.node import Node
from ltzd.chain.node.view import ChainView
from ltzd.cli.command_node import answering_nodes
from ltzd.cli.output import plain_text, print_json, print_message, print_page
from ltzd.cli.targets import Target, open_connection
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.disagreement import prevailing
from ltzd.store.database import Connection
from ltzd.store.indexer import chains
from ltzd.store.operator import lane_views
from ltzd.store.operator.lane_views import LaneView
from ltzd.store.operator.wallets import WalletState
from ltzd.values import ETHER, Address, checksummed, iso, iso_or_none


class NodeAnswers(msgspec.Struct, frozen=True):
    """The wallets as each node shows them after its newest block, by the node's name.

    `faults` are sentences about the nodes that are missing.
    """

    wallets: Mapping[str, Mapping[Address, Account]]
    faults: Sequence[str] = ()

    def of(self, wallet: Address) -> Mapping[str, Account]:
        return {
            name: accounts[wallet] for name, accounts in self.wallets.items() if wallet in accounts
        }

    def shown(self, wallet: Address) -> Account | None:
        """Of the nodes' nonces and balances the middle one, of two the lower one.

        One node that lies has no wallet look as if somebody else signed with its key.
        """
        accounts = list(self.of(wallet).values())
        if not accounts:
            return None
        return Account(
            balance=prevailing([each.balance for each in accounts], lambda wei: -wei),
            nonce=prevailing([each.nonce for each in accounts], lambda nonce: -nonce),
        )


def list_lanes(target: Target, kind: str | None, urls: Sequence[str], *, as_json: bool) -> None:
    lanes, answers = asyncio.run(_read(target, kind, urls))
    for fault in answers.faults:
        print_message(fault)
    for sentence in _contradictions(lanes, answers):
        print_message(sentence)
    wallets = {lane.wallet: answers.shown(lane.wallet) for lane in lanes}
    if as_json:
        print_json({"lanes": [as_object(lane, wallets) for lane in lanes]})
    elif lanes:
        print_page(_table(lanes, wallets))
        for sentence in _remarks(lanes, wallets):
            print_message(sentence)
    else:
        print_message(
            "There is no lane yet: a process with the role operator makes one for each wallet."
        )


async def _read(
    target: Target, kind: str | None, urls: Sequence[str]
) -> tuple[list[LaneView], NodeAnswers]:
    async with open_connection(target, "lane list") as connection:
        lanes = await lane_views.list_lanes(connection, kind=kind)
        return lanes, await _ask_nodes(connection, urls, lanes)


async def _ask_nodes(
    connection: Connection, urls: Sequence[str], lanes: Sequence[LaneView]
) -> NodeAnswers:
    """Ask all nodes of the database's chain. Nodes that are away must not hide the lanes."""
    chain = await chains.identity(connection)
    wallets = [lane.wallet for lane in lanes if chain and lane.chain_id == chain.chain_id]
    if chain is None or not urls or not wallets:
        return NodeAnswers({})
    try:
        async with answering_nodes(urls, chain.chain_id, chain.genesis_hash) as answering:
            reads = [_shown_by(node, wallets) for _, node in answering.nodes]
            answers = dict(zip(answering.clients, await asyncio.gather(*reads), strict=True))
            faults = [f"Not asked: {fault}" for fault in answering.faults]
    except NodeUnavailable as error:
        return NodeAnswers({}, [f"Nonces and balances on chain are left out: {error.message}"])
    accounts = {}
    for name, answer in answers.items():
        if isinstance(answer, NodeUnavailable):
            faults.append(f"Not asked: {name}: {answer.message}")
        else:
            accounts[name] = answer
    return NodeAnswers(accounts, faults)


async def _shown_by(
    node: Node, wallets: Sequence[Address]
) -> Mapping[Address, Account] | NodeUnavailable:
    try:
        view = await ChainView.newest(node)
        return {wallet: await view.account(wallet) for wallet in wallets}
    except NodeUnavailable as error:
        return error


def _contradictions(lanes: Sequence[LaneView], answers: NodeAnswers) -> Iterator[str]:
    for lane in lanes:
        accounts = answers.of(lane.wallet)
        if len(set(accounts.values())) > 1:
            shown = "; ".join(
                f"{name}: {account.nonce} nonces, {_coin(account)} coin"
                for name, account in accounts.items()
            )
            yield (
                f"The nodes do not agree about the {lane.kind} wallet {checksummed(lane.wallet)} "
                f"({shown}): one of them is some blocks behind, or lies. The list has the middle "
                "value, of two the lower one; repeat the command to see whether they still differ."
            )


def as_object(lane: LaneView, wallets: Mapping[Address, Account | None]) -> dict[str, Any]:
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
        "balanceWei": None if on_chain is None else str(on_chain.balance),
        "inFlight": lane.unmined,
        "mined": lane.mined,
        "oldestTransaction": lane.oldest,
        "oldestSeconds": None if lane.oldest_seconds is None else round(lane.oldest_seconds, 1),
        "pausedFor": lane.paused_for,
        "pausedSince": iso_or_none(lane.paused_since),
        "pausedByHandSince": iso_or_none(lane.by_hand_since),
        "pausedByHandReason": lane.by_hand_reason,
    }


def _table(lanes: Sequence[LaneView], wallets: Mapping[Address, Account | None]) -> Table:
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
            "-" if on_chain is None else _coin(on_chain),
            plain_text(_waits_for(lane)),
        )
    return table


def _waits_for(lane: LaneView) -> str:
    if lane.by_hand_since is not None:
        return f"by_hand since {iso(lane.by_hand_since)}: {lane.by_hand_reason}"
    if lane.paused_for is not None and lane.paused_since is not None:
        return f"{lane.paused_for} since {iso(lane.paused_since)}"
    return "-"


def _remarks(lanes: Sequence[LaneView], wallets: Mapping[Address, Account | None]) -> Iterator[str]:
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


def _coin(account: Account) -> str:
    return f"{account.balance / ETHER:.4f}"


def _dash(value: object) -> str:
    return "-" if value is None else str(value)

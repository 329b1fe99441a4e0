"""`ltzd wallet drain` and `ltzd wallet retire`."""

import asyncio
from collections.abc import Sequence

from ltzd.cli.command_node import answering_nodes
from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.wallet.lookup import find_work
from ltzd.cli.wallet.views import as_row
from ltzd.errors import Misconfigured, NodeUnavailable
from ltzd.store.database import Connection
from ltzd.store.indexer import chains
from ltzd.store.operator import wallet_work, wallets
from ltzd.store.operator.wallet_work import WalletWork
from ltzd.store.operator.wallets import WalletState
from ltzd.values import ETHER, Address, checksummed, iso

LOST, STOLEN = "lost", "stolen"
_WAITING = {
    "mint": "rewards wait in the queue",
    "relay": "users' calls are refused",
    "treasury": "no wallet is filled",
}
_ROLES = {"mint": "MINTER", "relay": "RELAYER and REDEEMER"}
"""The roles of each kind of wallet; a treasury has none."""


def cause_of(*, lost: bool, stolen: bool) -> str | None:
    """Raises Misconfigured."""
    if lost and stolen:
        raise Misconfigured(
            "--lost, --stolen: give only one of them, --stolen if others may have the key."
        )
    return LOST if lost else STOLEN if stolen else None


def drain(target: Target, wallet: str, reason: str | None, *, as_json: bool) -> None:
    asyncio.run(_drain(target, wallet, reason, as_json=as_json))


async def _drain(target: Target, wallet: str, reason: str | None, *, as_json: bool) -> None:
    async with open_connection(target, "wallet drain") as connection:
        before = await find_work(connection, wallet)
        row = before.row
        if not await wallets.set_state(
            connection, row.chain_id, row.wallet, WalletState.DRAINING, reason or row.reason
        ):
            row = (await find_work(connection, wallet)).row
            raise Misconfigured(
                f"{checksummed(row.wallet)} was retired at {iso(row.state_since)}, and signs "
                "nothing."
            )
        after = await find_work(connection, wallet)
        is_last = await _is_last(connection, after)
    if as_json:
        print_json(as_row(after) | {"isLastOfKind": is_last})
        return
    name = checksummed(row.wallet)
    if row.state is WalletState.DRAINING:
        print_message(f"{name} has been draining since {iso(row.state_since)}: nothing changes.")
    else:
        print_message(f"{name} drains: within a second it signs nothing new.")
    if after.in_flight:
        print_message(
            f"{after.in_flight} of its transactions are not final yet; the lane follows them, and "
            f"replaces those that are stuck. `ltzd wallet show {name}` shows when it is drained."
        )
    else:
        print_message(f"It has no open transaction: `ltzd wallet retire {name}` ends it for good.")
    if is_last:
        print_message(
            f"No other {row.kind} wallet is active: {_WAITING[row.kind]} until one is added."
        )


async def _is_last(connection: Connection, work: WalletWork) -> bool:
    return not any(
        other.kind == work.row.kind and other.state is WalletState.ACTIVE
        for other in await wallets.list_wallets(connection, work.row.chain_id)
    )


def retire(
    target: Target,
    urls: Sequence[str],
    wallet: str,
    cause: str | None,
    reason: str | None,
    *,
    as_json: bool,
) -> None:
    """`cause` is `lost` or `stolen`; `urls` are the nodes that may tell the wallet's balance.

    Raises Misconfigured for a wallet without a cause that is active or has open work.
    """
    asyncio.run(_retire(target, urls, wallet, cause, reason, as_json=as_json))


async def _retire(
    target: Target,
    urls: Sequence[str],
    wallet: str,
    cause: str | None,
    reason: str | None,
    *,
    as_json: bool,
) -> None:
    async with open_connection(target, "wallet retire") as connection:
        before = await find_work(connection, wallet)
        row, name = before.row, checksummed(before.row.wallet)
        if row.state is WalletState.RETIRED and cause is None:
            raise Misconfigured(f"{name} was retired at {iso(row.state_since)} already.")
        if row.state is WalletState.ACTIVE and cause is None:
            raise Misconfigured(
                f"{name} is active, and a retired wallet never works again: drain it first (`ltzd "
                f"wallet drain {name}`), and retire it when it is drained. If its key is gone, "
                "give --lost or --stolen. Nothing changed."
            )
        note = ": ".join(part for part in (cause or "drained", reason) if part)
        async with connection.transaction():
            count = await wallet_work.retire(connection, row.chain_id, row.wallet, note)
            if count and cause is None:
                raise Misconfigured(
                    f"{name} has {count} transactions that are not final: retire it when it is "
                    f"drained, as `ltzd wallet show {name}` reports. If its key is gone, give "
                    "--lost or --stolen. Nothing changed."
                )
        after = await find_work(connection, wallet)
        is_last = await _is_last(connection, after)
        balance_wei = await _balance_wei(connection, urls, row.wallet)
    if as_json:
        shown = None if balance_wei is None else str(balance_wei)
        print_json(as_row(after) | {"isLastOfKind": is_last, "balanceWei": shown})
        return
    print_message(f"{name} is retired: ltzd signs nothing with it ever again.")
    for sentence in _consequences(after, cause, balance_wei):
        print_message(sentence)
    if is_last:
        print_message(
            f"No other {row.kind} wallet is active: {_WAITING[row.kind]} until one is added."
        )


async def _balance_wei(connection: Connection, urls: Sequence[str], wallet: Address) -> int | None:
    """The highest balance that a node of the chain shows, or None if no node answers."""
    chain = await chains.identity(connection)
    if chain is None or not urls:
        return None
    try:
        async with answering_nodes(urls, chain.chain_id, chain.genesis_hash) as answering:
            reads = [node.balance(wallet) for _, node in answering.nodes]
            answers = await asyncio.gather(*reads, return_exceptions=True)
    except NodeUnavailable:
        return None
    return max((answer for answer in answers if isinstance(answer, int)), default=None)


def _fate_of_key(name: str, balance_wei: int | None) -> str:
    match balance_wei:
        case None:
            return (
                f"Everything that {name} signed is final. No node shows its balance: check it, "
                "and move its coin before its key is destroyed."
            )
        case 0:
            return (
                f"Everything that {name} signed is final, and the wallet holds no coin: its key "
                "can be destroyed."
            )
    return (
        f"Everything that {name} signed is final. The wallet holds {balance_wei / ETHER:g} of the "
        "chain's coin: move it before the key is destroyed, since nobody can afterwards."
    )


def _consequences(work: WalletWork, cause: str | None, balance_wei: int | None) -> list[str]:
    sentences = []
    if work.in_flight:
        sentences.append(
            f"{work.in_flight} of its transactions are not final: a lane without the key publishes "
            "them again and watches them, and queues again what is proven to be never mined. "
            f"`ltzd wallet show {checksummed(work.row.wallet)}` shows how many are left."
        )
    elif cause is None:
        sentences.append(_fate_of_key(checksummed(work.row.wallet), balance_wei))
    if work.row.signer is None:
        sentences.append("Remove it from the settings of each process that names it.")
    if cause == STOLEN:
        roles = _ROLES.get(work.row.kind)
        revoke = f"have the guardian revoke its roles ({roles}) now, and " if roles else ""
        sentences.append(f"Its thief can still use it: {revoke}follow docs/runbooks/stolen-key.md.")
    return sentences

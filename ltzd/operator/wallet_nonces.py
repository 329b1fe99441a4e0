"""The nodes' views of a wallet, and whether the database knows all that the wallet has done."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

import structlog

from ltzd.chain.node.node import Node
from ltzd.chain.node.typed_calls.requests import BlockRef
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.operator.policy import Stopped
from ltzd.rules.operator import wallet_history
from ltzd.rules.operator.wallet_history import WalletHistory
from ltzd.values import Address, checksummed

log = structlog.get_logger()

_Answer = TypeVar("_Answer")


async def used_nonces(
    node: Node, wallet: Address, stored: int | None, kind: str, *, adopts: bool = False
) -> int:
    """The number of nonces that the wallet has used on chain, by the node that has seen the fewest.

    `stored` is the database's next nonce, or None for a wallet that the database does not know.

    Raises Stopped if every node has seen more nonces used or pending than `stored`. A single node
    of several that claims so may lie, and stops nothing: if the claim is true, the foreign
    transaction is found later. So the first node that has seen at most `stored` decides alone.
    Raises Stopped for an unknown wallet, too, if most nodes show that it has signed anything,
    unless the lane `adopts` it. Raises NodeUnavailable if no node answers, or if the nodes disagree
    about an unknown wallet's nonce.
    """
    if stored is None:
        return await _first_nonce(node, wallet, kind, adopts=adopts)
    answers = await _used_and_pending(node, wallet, stored)
    used = [nonce for nonce, _ in answers]
    highest, lowest = max(used), min(used)
    pending = min(max(nonces) for nonces in answers)
    if pending > stored:
        taken = f"used {highest}" if lowest > stored else f"signed {pending}"
        raise Stopped(
            f"The {kind} wallet has {taken} nonces on chain, the database knows "
            f"{stored}: something else signs with its key, or the database is an old copy. "
            "`ltzd restore check` compares the two and says what to do"
        )
    if highest > stored:
        log.error("lane.nonces_disputed", kind=kind, claimed=highest, stored=stored)
    return lowest


async def _first_nonce(node: Node, wallet: Address, kind: str, *, adopts: bool) -> int:
    histories = await read_histories(node, wallet)
    first = wallet_history.next_free(histories)
    claims = wallet_history.ahead_of(histories, 0)
    if adopts:
        if wallet_history.agrees_on_used(histories):
            return first
    elif wallet_history.are_outvoted(claims, histories):
        if claims:
            log.error("lane.nonces_disputed", kind=kind, claimed=first, stored=0)
        return 0
    elif 2 * len(claims) > len(histories):
        raise Stopped(_unknown_wallet(wallet, kind, histories))
    raise NodeUnavailable("The nodes disagree about the wallet's nonce")


def _unknown_wallet(wallet: Address, kind: str, histories: Sequence[WalletHistory]) -> str:
    used = max(history.used for history in histories)
    pooled = max(len(history.pooled) for history in histories)
    waiting = max(wallet_history.next_free(histories) - used, pooled)
    pending = f", and {waiting} more wait in a node's pool" if waiting else ""
    return (
        f"The database does not know the {kind} wallet {checksummed(wallet)}, which has used "
        f"{used} nonces on chain{pending}: the wallet belongs to another database, or "
        "something else signs with its key. If nothing else uses the wallet, run `ltzd lane "
        f"adopt {checksummed(wallet)}`; if this database should know it, run `ltzd restore "
        "check`"
    )


async def read_histories(node: Node, wallet: Address) -> list[WalletHistory]:
    """The wallet as each usable node shows it, its pool included.

    Raises NodeUnavailable if no node answers.
    """
    view = await ChainView.newest(node)
    nodes = [view.node, *view.node.others()]
    return await gather_histories(
        [(f"node {number}", each) for number, each in enumerate(nodes, start=1)], wallet
    )


async def gather_histories(
    nodes: Sequence[tuple[str, Node]], wallet: Address
) -> list[WalletHistory]:
    """The wallet as each of the named nodes shows it; a node that does not answer is left out.

    Raises NodeUnavailable if no node answers.
    """
    reads = [_history(name, node, wallet) for name, node in nodes]
    return _answered(await asyncio.gather(*reads, return_exceptions=True))


async def _history(name: str, node: Node, wallet: Address) -> WalletHistory:
    # The pool first: a transaction that is mined meanwhile then counts once more, not once less.
    pooled = await node.pooled_nonces(wallet)
    pending = await node.pending_nonce(wallet)
    view = await ChainView.newest(node)
    used = await view.nonce(wallet)
    return WalletHistory(
        name,
        view.head.number,
        used,
        max(used, pending or 0),
        tuple(nonce for nonce in pooled or () if nonce >= used),
    )


async def _used_and_pending(node: Node, wallet: Address, most: int) -> list[tuple[int, int]]:
    """The nonces of the wallet at each usable node: after its newest block, and after its pool.

    The list ends with the first node that has seen at most `most`. Each node tells the nonces after
    its own newest block, since a node that has not reached another one's block would not answer.
    Raises NodeUnavailable if no node answers.
    """
    view = await ChainView.newest(node)
    reads = [asyncio.ensure_future(_nonces(view.node, wallet, view.head))]
    reads += [asyncio.ensure_future(_nonces(each, wallet, "latest")) for each in view.node.others()]
    answers: list[tuple[int, int]] = []
    try:
        for read in asyncio.as_completed(reads):
            with suppress(NodeUnavailable):
                answers.append(await read)
                if max(answers[-1]) <= most:
                    break
    finally:
        for pending in reads:
            pending.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
    return _answered(answers)


async def _nonces(node: Node, wallet: Address, at: BlockRef) -> tuple[int, int]:
    used, pending = await asyncio.gather(node.nonce(wallet, at), node.pending_nonce(wallet))
    return used, pending or 0


def _answered(answers: Sequence[_Answer | BaseException]) -> list[_Answer]:
    """The answers of the nodes that gave one. Raises NodeUnavailable if none did."""
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, NodeUnavailable):
            raise answer
    given = [answer for answer in answers if not isinstance(answer, BaseException)]
    if not given:
        raise NodeUnavailable("No node shows the wallet's nonce")
    return given

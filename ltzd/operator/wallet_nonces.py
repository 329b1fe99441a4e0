"""The wallet's next nonce at the beginning of a term, as far as the nodes agree on it."""

import asyncio

import structlog

from ltzd.chain.node.node import Node
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.operator.policy import Stopped
from ltzd.values import Address

log = structlog.get_logger()


async def used_nonces(node: Node, wallet: Address, stored: int | None, kind: str) -> int:
    """The number of nonces that the wallet has used on chain, by the node that has seen the fewest.

    `stored` is the next nonce of the database, None for a new lane. Raises Stopped if every node
    has seen more than that used. A single node of several that claims so may lie, and stops
    nothing: if it is right, the nonce's transaction is found later. Raises NodeUnavailable if no
    node answers, or if the nodes disagree about a new lane's nonce.
    """
    answers = await _answers(node, wallet)
    highest, lowest = max(answers), min(answers)
    if stored is None:
        if highest != lowest:
            raise NodeUnavailable("The nodes disagree about the wallet's nonce")
        return highest
    if lowest > stored:
        raise Stopped(
            f"The {kind} wallet has used {highest} nonces on chain, the database knows "
            f"{stored}: something else signs with its key, or the database is an old copy"
        )
    if highest > stored:
        log.error("lane.nonces_disputed", kind=kind, claimed=highest, stored=stored)
    return lowest


async def _answers(node: Node, wallet: Address) -> list[int]:
    """The nonces after the newest block of each usable node. Raises NodeUnavailable if none tells.

    Not after one block of all nodes: a node that has not reached it would not answer.
    """
    view = await ChainView.newest(node)
    reads = [view.nonce(wallet), *(other.nonce(wallet) for other in view.node.others())]
    answers = await asyncio.gather(*reads, return_exceptions=True)
    nonces = [answer for answer in answers if isinstance(answer, int)]
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, NodeUnavailable):
            raise answer
    if not nonces:
        raise NodeUnavailable("No node tells the wallet's nonce")
    return nonces

"""Publishes transactions to several nodes at once, so that no single node can withhold them.

The outcomes of the nodes are merged by `rules/nodes/publications.py`. Bytes that the first nodes
refuse for good, or without an explanation, are offered to all other nodes before that counts.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Self, TypeAlias

from ltzd.chain.node.node import Node
from ltzd.concurrency.hedging import hedged
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.publications import PublishOutcome, merged

Publication: TypeAlias = tuple[PublishOutcome, str]
"""An outcome, and the node's error message for logs."""

_Answer: TypeAlias = list[Publication] | NodeUnavailable

_CLEAR = frozenset((PublishOutcome.ACCEPTED, PublishOutcome.NONCE_TOO_LOW))
_FIRST_NODES = 2
"""The best nodes, which get the bytes before any other node."""
_MOMENT_SECONDS = 0.5
_UNCONFIRMED = {
    PublishOutcome.REFUSED_FOR_GOOD: PublishOutcome.UNKNOWN,
    PublishOutcome.REFUSED_UNEXPLAINED: PublishOutcome.REFUSED,
}
"""The outcomes that give bytes up, and the outcome of each while a usable node is silent."""


class Broadcast:
    """Use it as an async context manager: it owns the requests that outlast a publication.

    At most `kept` requests go on after their
    publication; the oldest ones are cancelled.
    """

    def __init__(self, node: Node, kept: int = 16) -> None:
        self._node = node
        self._kept = kept
        self._going_on: dict[asyncio.Task[_Answer], None] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        going_on = list(self._going_on)
        for task in going_on:
            task.cancel()
        await asyncio.gather(*going_on, return_exceptions=True)

    async def publish_all(self, raws: Sequence[bytes]) -> list[Publication]:
        """Send signed bytes in order; returns as soon as one node has accepted them all.

        The second node gets the bytes all the same. Without a node that accepts, every answer is
        awaited, but only for a moment once a node has accepted some and has seen the nonces of all
        others used. Raises NodeUnavailable if no node answers: the bytes may have arrived.
        """
        publishers = self._node.publishers()
        if len(publishers) == 1:
            publications = await _published(publishers[0], raws)
            return (
                publications
                if publishers[0].is_alone
                else [_unconfirmed(*each) for each in publications]
            )
        answers = await self._answers(publishers[:_FIRST_NODES], raws)
        rest = publishers[_FIRST_NODES:]
        if rest and _may_be_given_up(answers, len(raws)):
            answers += await self._answers(rest, raws)
        return _merged(answers, len(raws))

    async def _answers(self, publishers: Sequence[Node], raws: Sequence[bytes]) -> list[_Answer]:
        """The nodes' answers, or only the answer of the first node that accepts all bytes.

        After a restart the batch may hold bytes of used nonces, which a receipt decides about: a
        silent node must not hold up the other bytes because of them.
        """
        waiting = {asyncio.create_task(_send(node, raws)) for node in publishers}
        answers: list[_Answer] = []
        try:
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting,
                    timeout=_MOMENT_SECONDS if any(map(_needs_no_other, answers)) else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    break
                answers += [task.result() for task in done]
                accepted = next(filter(_accepts_all, answers), None)
                if accepted is not None:
                    return [accepted]
        finally:
            self._keep(waiting)
        return answers

    def _keep(self, tasks: set[asyncio.Task[_Answer]]) -> None:
        for task in tasks:
            self._going_on[task] = None
            task.add_done_callback(lambda done: self._going_on.pop(done, None))
        for task in list(self._going_on)[: -self._kept]:
            task.cancel()


async def _published(node: Node, raws: Sequence[bytes]) -> list[Publication]:
    """A lone transaction is published a second time if the answer is late: it does no harm."""
    if len(raws) > 1:
        return await node.publish_all(raws)
    return await hedged(partial(node.publish_all, raws))


async def _send(node: Node, raws: Sequence[bytes]) -> _Answer:
    try:
        return await node.publish_all(raws)
    except NodeUnavailable as error:
        return error


def _unconfirmed(outcome: PublishOutcome, text: str) -> Publication:
    """The outcome at one node while another node is silent, and may hold the bytes."""
    return _UNCONFIRMED.get(outcome, outcome), text


def _accepts_all(answer: _Answer) -> bool:
    return isinstance(answer, list) and all(
        outcome is PublishOutcome.ACCEPTED for outcome, _ in answer
    )


def _needs_no_other(answer: _Answer) -> bool:
    """Whether the answer leaves nothing open: a node holds the bytes, or their nonce is used."""
    return isinstance(answer, list) and all(outcome in _CLEAR for outcome, _ in answer)


def _may_be_given_up(answers: Sequence[_Answer], count: int) -> bool:
    """Whether bytes would be given up, now or later, if no other node were asked."""
    if all(isinstance(answer, NodeUnavailable) for answer in answers):
        return False
    return any(outcome in _UNCONFIRMED for outcome, _ in _merged(answers, count))


def _merged(answers: Sequence[_Answer], count: int) -> list[Publication]:
    """Raises the first node's NodeUnavailable if every node was silent."""
    silent = [answer for answer in answers if isinstance(answer, NodeUnavailable)]
    if len(silent) == len(answers):
        raise silent[0]
    by_node = [
        [(PublishOutcome.UNKNOWN, answer.message)] * count
        if isinstance(answer, NodeUnavailable)
        else answer
        for answer in answers
    ]
    return [_decided(of_nodes) for of_nodes in zip(*by_node, strict=True)]


def _decided(publications: Sequence[Publication]) -> Publication:
    outcome = merged([outcome for outcome, _ in publications])
    return next(each for each in publications if each[0] is outcome)

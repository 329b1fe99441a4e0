"""Asks other nodes before one node's answer stops a lane, or refuses work.

The node that a lane reads is asked alone while its answers let the work go on. An answer that would
restrict the work is compared with those of two other nodes: of three the middle one counts, of two
the more lenient one (`rules/nodes/disagreement.py`). A lenient lie costs little: fees stay under
their cap, simulations still decide, and nodes refuse what a wallet cannot pay.
"""

import asyncio
from collections.abc import Awaitable, Callable
from operator import not_
from typing import Any, Generic, TypeVar

import msgspec

from ltzd.chain.node.node import Node
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.disagreement import contradicted, prevailing
from ltzd.values import Hash32

Answer = TypeVar("Answer")

SIMULATION = "simulation"
"""Nodes show different results of a simulated call after the same block."""
OPINIONS = 2
"""The most other nodes that are asked."""
_OPINION_SECONDS = 2.0
"""The longest wait for a second opinion: the lane stands still meanwhile."""


class Question(msgspec.Struct, Generic[Answer], frozen=True):
    """`ask` reads another node's answer: None if this node cannot tell; may raise NodeUnavailable.

    `leniency` orders the answers. `contradict` tells whether two answers cannot both be honest: a
    node that is a block behind is no liar. `kind` labels a metric.
    """

    ask: Callable[[Node], Awaitable[Answer | None]]
    leniency: Callable[[Answer], Any]
    contradict: Callable[[Answer, Answer], bool]
    kind: str


class Compared(msgspec.Struct, Generic[Answer], frozen=True):
    """The answer that counts, of all `answers`; the first of these is the node's own.

    `is_confirmed`: another node has answered, too, or there is none to ask. A lasting effect waits
    for that.
    """

    answer: Answer
    answers: tuple[Answer, ...]
    is_confirmed: bool


async def compare_with_others(
    node: Node, own: Answer, question: Question[Answer]
) -> Compared[Answer]:
    """Compare a pinned node's own answer with those of other nodes; return which answer counts.

    Reports the node that is outvoted. Two nodes that contradict each other are both reported as
    such, and stay in use.
    """

    async def opinion(other: Node) -> Answer | None:
        try:
            return await answered_in_time(other, question.ask(other), _OPINION_SECONDS)
        except NodeUnavailable:
            return None

    others = node.others()[:OPINIONS]
    given = await asyncio.gather(*map(opinion, others))
    testimonies = [
        (other, each) for other, each in zip(others, given, strict=True) if each is not None
    ]
    nodes = [node, *(other for other, _ in testimonies)]
    answers = (own, *(answer for _, answer in testimonies))
    wrong = contradicted(answers, question.contradict)
    for position in wrong:
        if len(wrong) == 1:
            nodes[position].report_contradiction(question.kind)
        else:
            nodes[position].report_dispute(question.kind)
    return Compared(
        prevailing(answers, question.leniency), answers, bool(testimonies) or node.is_alone
    )


async def compare_views(
    view: ChainView,
    own: Answer,
    read: Callable[[ChainView], Awaitable[Answer]],
    leniency: Callable[[Answer], Any],
    kind: str,
    from_block: int = 0,
) -> Compared[Answer]:
    """Compare what a view's block shows with what `read` finds in other nodes' newest blocks.

    Different answers of one block contradict each other. A node cannot tell while it is behind
    `from_block`, or if `read` raises NodeUnavailable.
    """

    async def ask(other: Node) -> tuple[Answer, Hash32] | None:
        theirs = await ChainView.newest(other)
        is_behind = theirs.head.number < from_block
        return None if is_behind else (await read(theirs), theirs.head.hash)

    compared = await compare_with_others(
        view.node,
        (own, view.head.hash),
        Question(ask, lambda seen: leniency(seen[0]), _contradict, kind),
    )
    answers = tuple(answer for answer, _ in compared.answers)
    return Compared(compared.answer[0], answers, compared.is_confirmed)


def _contradict(first: tuple[object, Hash32], second: tuple[object, Hash32]) -> bool:
    return first[1] == second[1] and first[0] != second[0]


async def is_passed_by_others(node: Node, passes: Callable[[ChainView], Awaitable[bool]]) -> bool:
    """Whether a call that this pinned node refused passes there by now, or at two other nodes.

    The other nodes' blocks are as new as this node's newest. With one other node the refusal
    stands, since a call that passes by a lie would be paid for. Raises NodeUnavailable.
    """
    if node.is_alone:
        return False
    view = await ChainView.newest(node)
    if await passes(view):
        return True
    return (await compare_views(view, False, passes, not_, SIMULATION, view.head.number)).answer


async def answered_in_time(other: Node, answer: Awaitable[Answer], seconds: float) -> Answer:
    """The other node's answer. Raises NodeUnavailable after `seconds`, and reports the node then.

    A pool leaves a silent node alone, so that no later question waits for it.
    """
    try:
        async with asyncio.timeout(seconds) as deadline:
            return await answer
    except TimeoutError as error:
        if not deadline.expired():
            raise
        other.report_silence()
        raise NodeUnavailable("The node did not confirm in time", kind="timeout") from error

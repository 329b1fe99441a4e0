"""Asks other nodes before one node's answer stops a lane, or refuses work.

The node that a lane reads is asked alone while its answers let the work go on. An answer that would
restrict the work is compared with those of two other nodes: of three the middle one counts, of two
the more lenient one (`rules/nodes/disagreement.py`). A lenient lie costs little: fees stay under
their cap, simulations still decide, and nodes refuse what a wallet cannot pay.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ltzd.chain.node.node import Node
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.disagreement import contradicted, prevailing

Answer = TypeVar("Answer")

_OPINIONS = 2
"""The most other nodes that are asked."""
_OPINION_SECONDS = 2.0
"""The longest wait for a second opinion: the lane stands still meanwhile."""


@dataclass(frozen=True, slots=True)
class Question(Generic[Answer]):
    """`ask` reads another node's answer: None if this node cannot tell; may raise NodeUnavailable.

    `leniency` orders the answers. `contradict` tells whether no honest nodes give two answers: a
    node that is a block behind is no liar. `kind` labels a metric.
    """

    ask: Callable[[Node], Awaitable[Answer | None]]
    leniency: Callable[[Answer], Any]
    contradict: Callable[[Answer, Answer], bool]
    kind: str


@dataclass(frozen=True, slots=True)
class Compared(Generic[Answer]):
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

    others = node.others()[:_OPINIONS]
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

"""Finds the answer that counts among several nodes' answers, and the nodes that contradict it."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def dissenters(answers: Sequence[Hashable]) -> list[int]:
    """The positions of the answers that a majority of the nodes contradicts.

    Without a majority every position is returned if the answers differ: none can be believed more
    than another.
    """
    counts = Counter(answers).most_common(1)
    if not counts or counts[0][1] == len(answers):
        return []
    answer, votes = counts[0]
    if 2 * votes <= len(answers):
        return list(range(len(answers)))
    return [position for position, other in enumerate(answers) if other != answer]


def prevailing(answers: Sequence[Answer], leniency: Callable[[Answer], Any]) -> Answer:
    """The middle one of three answers, and of two the more lenient one.

    `leniency` orders the answers. Of three nodes no single one restricts the work by a lie, nor
    permits by a lie what the other two forbid.
    """
    ranked = sorted(answers, key=leniency, reverse=True)
    return ranked[(len(ranked) - 1) // 2]


def contradicted(
    answers: Sequence[Answer], contradict: Callable[[Answer, Answer], bool]
) -> list[int]:
    """The positions of the answers that each other answer contradicts.

    One position is a node that the others outvote. Several positions mean that nobody can tell
    which node is right, as with two nodes.
    """
    if len(answers) < 2:
        return []
    return [
        position
        for position, answer in enumerate(answers)
        if all(contradict(answer, other) for at, other in enumerate(answers) if at != position)
    ]

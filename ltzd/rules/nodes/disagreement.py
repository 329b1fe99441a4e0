"""Which nodes contradict the others when all are asked the same question."""

from collections import Counter
from collections.abc import Hashable, Sequence


def agreed(answers: Sequence[Hashable], before: Hashable) -> Hashable:
    """The answer of the most nodes; among equally frequent answers `before` stays.

    `before` is the last agreement, or None.
    """
    counts = Counter(answers)
    return max([before, *counts], key=lambda answer: counts[answer])


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

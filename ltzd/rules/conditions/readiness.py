"""The conditions for which a process is not ready for traffic."""

from collections.abc import Iterable

from ltzd.rules.conditions.kinds import Condition, ConditionKind

_ALWAYS = frozenset(
    (
        ConditionKind.DATABASE_UNAVAILABLE,
        ConditionKind.INDEX_NOT_BEGUN,
        ConditionKind.INDEX_STOPPED,
        ConditionKind.INDEX_STANDS_STILL,
        ConditionKind.INDEX_BEHIND,
    )
)
_OF_HTTP = frozenset(
    (
        ConditionKind.DATABASE_UNAVAILABLE,
        ConditionKind.DRAINING,
        ConditionKind.INDEX_NOT_BEGUN,
    )
)
"""HTTP goes on from what is known while the index is old."""


def reasons(conditions: Iterable[Condition], *, for_http: bool = False) -> tuple[Condition, ...]:
    """The conditions for which the process that has judged them is not ready.

    With `for_http` only conditions that keep HTTP from its work.
    """
    return tuple(
        condition
        for condition in conditions
        if (condition.kind in _ALWAYS or condition.is_blocking)
        and (not for_http or condition.kind in _OF_HTTP)
    )

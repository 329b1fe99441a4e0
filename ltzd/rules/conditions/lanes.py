"""Conditions of the operator's lanes and wallets."""

from collections.abc import Iterable, Iterator

from ltzd.rules.conditions.facts import LaneState
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.values import checksummed


def judge_own_lanes(lanes: Iterable[LaneState]) -> Iterator[Condition]:
    """The faults of lanes that only the process that runs them knows."""
    for lane in lanes:
        if lane.stopped is not None:
            name = checksummed(lane.wallet)
            yield Condition(
                ConditionKind.LANE_STOPPED,
                f"Lane {lane.kind} {name} stopped: {lane.stopped}",
                name,
                is_blocking=True,
            )

"""Conditions of the index, judged by the time since its last commit.

The time is the database's, so a process without the role indexer, and without a node, sees it too.
"""

from collections.abc import Iterator, Sequence

from ltzd.rules.conditions.facts import ChainFacts, ClusterFacts
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.rules.conditions.policy import ConditionPolicy
from ltzd.rules.indexer.standstill import IndexProgress, stands_still


def progress_of(
    chain: ChainFacts, heights: Sequence[int | None], policy: ConditionPolicy
) -> IndexProgress:
    """`heights` are the newest blocks that trusted nodes have shown, to any process."""
    return IndexProgress(
        cursor_number=chain.cursor_number,
        head_number=max([chain.head_number, *(height or 0 for height in heights)]),
        idle_seconds=chain.idle_seconds,
        block_seconds=None if policy.mines_on_demand else chain.block_seconds,
    )


def judge_index(
    facts: ClusterFacts, heights: Sequence[int | None], policy: ConditionPolicy
) -> Iterator[Condition]:
    if facts.chain is None:
        yield Condition(
            ConditionKind.INDEX_NOT_BEGUN, "The indexer has not begun to follow the chain"
        )
        return
    progress = progress_of(facts.chain, heights, policy)
    if facts.chain.stopped_reason is not None:
        yield Condition(
            ConditionKind.INDEX_STOPPED,
            f"The index is stopped, and the newest block was indexed {progress.idle_seconds:.0f} s "
            f"ago: {facts.chain.stopped_reason}",
        )
    elif stands_still(progress, policy.standstill):
        yield Condition(
            ConditionKind.INDEX_STANDS_STILL,
            f"The indexer has committed no block for {progress.idle_seconds:.0f} s",
        )
    else:
        yield from _behind(progress, policy)


def _behind(progress: IndexProgress, policy: ConditionPolicy) -> Iterator[Condition]:
    seconds = progress.lag_seconds
    is_old = seconds is None or seconds > policy.max_lag_seconds
    if progress.lag_blocks > policy.max_lag_blocks and is_old:
        about = "" if seconds is None else f", about {seconds:.0f} s,"
        yield Condition(
            ConditionKind.INDEX_BEHIND,
            f"The indexer is {progress.lag_blocks} blocks{about} behind the head",
        )

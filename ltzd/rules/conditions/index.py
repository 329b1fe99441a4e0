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
    yield from _background_work(facts)
    chain = facts.chain
    if chain is None:
        yield Condition(
            ConditionKind.INDEX_NOT_BEGUN,
            "The indexer has not begun to follow the chain: start a process with the role indexer, "
            "and look whether its node answers",
        )
        return
    progress = progress_of(chain, heights, policy)
    if chain.stopped_reason is not None:
        yield Condition(
            ConditionKind.INDEX_STOPPED,
            f"The index is stopped, and the newest block was indexed {progress.idle_seconds:.0f} s "
            f"ago: {chain.stopped_reason}",
        )
    elif stands_still(progress, policy.standstill):
        yield Condition(
            ConditionKind.INDEX_STANDS_STILL,
            f"The indexer has committed no block for {progress.idle_seconds:.0f} s: "
            f"{_holder(facts, chain)}",
        )
    else:
        yield from _behind(progress, policy)


def _holder(facts: ClusterFacts, chain: ChainFacts) -> str:
    holder = facts.lease_holders.get(f"indexer/{chain.chain_id}")
    if holder is None:
        return "no process follows the chain"
    return f"process {holder} follows the chain; its nodes or its log say why"


def _background_work(facts: ClusterFacts) -> Iterator[Condition]:
    if facts.rebuild is not None:
        yield Condition(
            ConditionKind.INDEX_REBUILDS,
            f"A rebuild of the index is open ({facts.rebuild}); `ltzd status` shows its progress",
        )
        if facts.rebuild_error is not None:
            yield Condition(
                ConditionKind.INDEX_REBUILD_FAILS,
                "The rebuild of the index has failed, and ltzd tries it again: "
                f"{facts.rebuild_error}",
            )
    if facts.migrations:
        yield Condition(
            ConditionKind.TABLES_UNCONVERTED,
            f"The indexer converts tables in the background: {', '.join(facts.migrations)}",
        )
    for migration, error in facts.migration_errors.items():
        yield Condition(
            ConditionKind.CONVERSION_FAILS,
            f"The background migration `{migration}` has failed with PostgreSQL's error {error}, "
            "and is tried again every minute: the runbook says what to do for each error",
            migration,
        )


def _behind(progress: IndexProgress, policy: ConditionPolicy) -> Iterator[Condition]:
    seconds = progress.lag_seconds
    is_old = seconds is None or seconds > policy.max_lag_seconds
    if progress.lag_blocks > policy.max_lag_blocks and is_old:
        about = "" if seconds is None else f", about {seconds:.0f} s,"
        yield Condition(
            ConditionKind.INDEX_BEHIND,
            f"The indexer is {progress.lag_blocks} blocks{about} behind the head",
        )

"""Sets the gauges that the admin server reads from the database for each scrape.

A figure that cannot be read becomes NaN, in place of its last value: an old figure would mislead.
"""

import math
from collections import Counter
from collections.abc import Sequence

from ltzd import telemetry
from ltzd.rules.conditions.facts import ChainFacts
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.rules.indexer.standstill import IndexProgress
from ltzd.store.status import StatusFacts

_INDEX_GAUGES = (
    telemetry.INDEX_STANDS_STILL,
    telemetry.INDEX_IDLE_SECONDS,
    telemetry.INDEX_STOPPED,
    telemetry.HEAD_BLOCK,
    telemetry.SYNC_BLOCK,
    telemetry.FINAL_BLOCK,
    telemetry.AUDITED_BLOCK,
    telemetry.HEAD_LAG_BLOCKS,
)


def count_conditions(conditions: Sequence[Condition]) -> None:
    """Set `ltzd_conditions`, also to 0 for every kind without a condition."""
    counts = Counter(condition.kind for condition in conditions)
    for kind in ConditionKind:
        telemetry.CONDITIONS.labels(kind.value).set(counts[kind])


def measure_index(
    chain: ChainFacts | None, progress: IndexProgress | None, *, is_still: bool
) -> None:
    """Set the same figures in every process, whether or not it is the indexer."""
    if chain is None or progress is None:
        for gauge in _INDEX_GAUGES:
            gauge.set(math.nan)
        return
    telemetry.INDEX_STANDS_STILL.set(is_still)
    telemetry.INDEX_IDLE_SECONDS.set(chain.idle_seconds)
    telemetry.INDEX_STOPPED.set(chain.stopped_reason is not None)
    telemetry.HEAD_BLOCK.set(progress.head_number)
    telemetry.SYNC_BLOCK.set(chain.cursor_number)
    telemetry.FINAL_BLOCK.set(chain.final_number)
    audited = chain.audited_number
    telemetry.AUDITED_BLOCK.set(math.nan if audited is None else audited)
    telemetry.HEAD_LAG_BLOCKS.set(progress.lag_blocks)


def measure_queues(facts: StatusFacts | None) -> None:
    rewards = None if facts is None else facts.rewards
    relays = None if facts is None else facts.relays
    telemetry.QUEUED_REWARDS.set(math.nan if rewards is None else rewards.queued)
    telemetry.REWARDS_ABOVE_LIMIT.set(math.nan if rewards is None else rewards.above_limit)
    telemetry.QUEUED_RELAYS.set(math.nan if relays is None else relays.queued)
    if facts is not None:
        telemetry.BACKGROUND_MIGRATIONS.set(len(facts.migrations))
        for kind, count in facts.unserved.items():
            telemetry.WALLETS_UNSERVED.labels(kind).set(count)

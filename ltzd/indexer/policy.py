"""The indexer's settings."""

import msgspec

from ltzd.rules.indexer.disputes import SECOND_CHECK_SECONDS, DisputePolicy

SLOWEST_POLL_SECONDS = 2.0
"""Reads are to follow a reorg within 3 s, also where no node announces heads."""


class BackfillPolicy(msgspec.Struct, frozen=True):
    """How far ahead of the cursor settled blocks are read, and how many events commit together."""

    concurrency: int = 3
    """Ranges that are read at once."""
    held_bytes: int = 24 * 1024 * 1024
    """The memory of ranges that are being read or wait for their commit. Above it no further range
    is begun."""
    first_blocks: int = 64
    """Blocks of the first ranges, before any answer has shown how much a block holds."""
    least_events: int = 5_000
    """The events of one commit; fewer if the next range takes longer than `linger_seconds`."""
    most_events: int = 10_000
    linger_seconds: float = 0.5
    turn_seconds: float = 1.0
    """How long commits follow each other before the node's head is polled again."""


class AuditPolicy(msgspec.Struct, frozen=True):
    range_blocks: int = 2_000
    """The most blocks that are read at once."""
    nearby_blocks: int = 64
    """The audit waits while the index is further behind the head."""
    rest: float = 9.0
    """The audit rests this many times as long as it worked: it takes a tenth of a node's time."""
    least_pause_seconds: float = 0.05
    longest_pause_seconds: float = 60.0
    idle_seconds: float = 10.0
    """The pause after all settled blocks were audited."""
    totals_seconds: float = 30.0
    """The time between two comparisons of totals at the head; each backfill range ends with one."""
    second_check_seconds: float = 2.0
    """The pause before totals that differ are read again."""


class IndexerPolicy(msgspec.Struct, frozen=True):
    """`follows_deep_reorgs` is for dev chains: elsewhere a reorg below finality stops the indexer.

    `final_depth` and `final_seconds` define finality for nodes without the tag `finalized`: a block
    is final once it is that deep and was seen that long ago.
    """

    poll_seconds: float = 1.0
    """The shortest pause between two polls of the head; an announced head ends it."""
    slowest_poll_seconds: float = SLOWEST_POLL_SECONDS
    """The longest pause: half a block time lies between both."""
    retry_seconds: float = 0.05
    """The pause before an announced head that the node in use lacks is polled for again."""
    head_blocks: int = 16
    """Blocks that are read at once near the head, with all their headers."""
    range_blocks: int = 2_000
    """Blocks of one `eth_getLogs` far from the head; halved while the node refuses the range."""
    final_depth: int = 64
    final_seconds: float = 60.0
    finality_pause_seconds: float = 2.0
    """The time between two requests for the other nodes' `finalized`."""
    same_finality_pause_seconds: float = 30.0
    """The same while the node in use reports no later `finalized`."""
    follows_deep_reorgs: bool = False
    fork_search_blocks: int = 128
    """Blocks that are compared at once when the fork point of a reorg is searched."""
    branch_blocks: int = 1_024
    branch_facts: int = 50_000
    """The most facts of a reorg's new branch in the commit that undoes the old branch. The new
    branch is read in parts of `head_blocks`."""
    second_check_seconds: float = SECOND_CHECK_SECONDS
    """How long blocks must be missing before they count as gone, how long an empty answer for logs
    waits for a second node, and how long a reorg waits for the whole of its new branch."""
    stall_seconds: float = 6.0
    """How long a second node may be silent before one node's word counts, and how long a branch may
    stand still before another branch that grows wins over it."""
    opinion_seconds: float = 5.0
    """The longest wait for one node's answer to a dispute."""
    broken_after_seconds: float = 60.0
    """How long a single node must deny final blocks before the indexer stops for good."""
    backfill: BackfillPolicy = BackfillPolicy()
    is_rebuild: bool = False
    """Whether fresh tables are filled (`indexer/rebuild`): the gauges stay those of the live
    index."""
    search_seconds: float = 600.0
    """The longest search for the cause of an impossible fact."""
    term_pause_seconds: float = 0.5
    """The pause between a term and the attempt to begin the next one."""

    audit: AuditPolicy = AuditPolicy()

    @property
    def dispute_policy(self) -> DisputePolicy:
        return DisputePolicy(self.second_check_seconds, self.stall_seconds)

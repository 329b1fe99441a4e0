"""The indexer's settings."""

from dataclasses import dataclass

from ltzd.rules.indexer.reorgs import SECOND_LOOK_SECONDS


@dataclass(frozen=True, slots=True)
class IndexerPolicy:
    """`follows_deep_reorgs` is for dev chains: elsewhere a reorg below finality stops the indexer.

    `final_depth` and `final_seconds` define finality for nodes without the tag `finalized`: a block
    is final once it is that deep and was seen that long ago.
    """

    poll_seconds: float = 1.0
    head_blocks: int = 16
    """Blocks that are read at once near the head, with all their headers."""
    range_blocks: int = 2_000
    """Blocks of one `eth_getLogs` far from the head; halved while the node refuses the range."""
    final_depth: int = 64
    final_seconds: float = 60.0
    follows_deep_reorgs: bool = False
    fork_search_blocks: int = 128
    """Blocks that are compared at once when the fork point of a reorg is searched."""
    second_look_seconds: float = SECOND_LOOK_SECONDS
    """How long the head must be below the cursor before it counts as a reorg."""
    lock_retry_seconds: float = 0.5
    """Between two attempts to take the chain's lock while another process holds it."""
    term_pause_seconds: float = 0.5
    """Between a term and the attempt to begin the next one."""

"""The columns that every fact's row begins with: the position of its log on the chain."""

from collections.abc import Sequence

from ltzd.rules.indexer.log_position import PositionedFact


def position_columns(
    facts: Sequence[PositionedFact],
) -> tuple[list[bytes], list[int], list[int], list[bytes]]:
    """Block hashes, log indexes, block numbers and transaction hashes: the first four columns."""
    positions = [fact.position for fact in facts]
    return (
        [position.block_hash for position in positions],
        [position.log_index for position in positions],
        [position.block_number for position in positions],
        [position.transaction_hash for position in positions],
    )

"""What the rows of all facts have in common: where their logs stand on the chain."""

from collections.abc import Sequence
from typing import Protocol

from ltzd.rules.indexer.log_position import LogPosition


class Positioned(Protocol):
    @property
    def position(self) -> LogPosition: ...


def position_columns(
    those: Sequence[Positioned],
) -> tuple[list[bytes], list[int], list[int], list[bytes]]:
    """Block hashes, log indexes, block numbers and transaction hashes: the first four columns."""
    places = [one.position for one in those]
    return (
        [position.block_hash for position in places],
        [position.log_index for position in places],
        [position.block_number for position in places],
        [position.transaction_hash for position in places],
    )

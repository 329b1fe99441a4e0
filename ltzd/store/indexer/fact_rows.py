"""What the rows of all facts have in common: where their logs stand on the chain."""

from collections.abc import Sequence
from typing import Protocol

from ltzd.rules.indexer.contract_facts import Place


class LoggedFact(Protocol):
    @property
    def place(self) -> Place: ...


def place_columns(
    those: Sequence[LoggedFact],
) -> tuple[list[bytes], list[int], list[int], list[bytes]]:
    """Block hashes, log indexes, block numbers and transaction hashes: the first four columns."""
    places = [one.place for one in those]
    return (
        [place.block_hash for place in places],
        [place.log_index for place in places],
        [place.block_number for place in places],
        [place.transaction_hash for place in places],
    )

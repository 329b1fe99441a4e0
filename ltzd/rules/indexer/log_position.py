"""The position of a log on the chain; every fact has one."""

from typing import Protocol

import msgspec

from ltzd.values import Hash32


class LogPosition(msgspec.Struct, frozen=True):
    block_number: int
    block_hash: Hash32
    log_index: int
    """The log's index in its block."""
    transaction_hash: Hash32

    @property
    def order(self) -> tuple[int, Hash32, int]:
        """Identifies the log, and sorts logs in the chain's order."""
        return self.block_number, self.block_hash, self.log_index


class PositionedFact(Protocol):
    @property
    def position(self) -> LogPosition: ...

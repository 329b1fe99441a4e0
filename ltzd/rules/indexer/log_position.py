"""The position of a log on the chain, which identifies the fact that the log holds."""

from dataclasses import dataclass

from ltzd.values import Hash32


@dataclass(frozen=True, slots=True)
class LogPosition:
    """`log_index` counts the logs of the whole block."""

    block_number: int
    block_hash: Hash32
    log_index: int
    transaction_hash: Hash32

    @property
    def sort_key(self) -> tuple[int, Hash32, int]:
        """The order of the chain; two logs with the same key are the same log."""
        return self.block_number, self.block_hash, self.log_index

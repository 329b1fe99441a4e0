"""The records of `ltzd books`: each brand's figures, and the disagreements between them.

Amounts are in whole LTZ and in cents. `Figures` can be added; a brand without any event has zeros.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Self

import msgspec
from msgspec.structs import astuple, replace

from ltzd.rules.amounts import ltz_of
from ltzd.rules.operator.wallet_history import REFERENCES_A_WORD
from ltzd.values import LTZ, Address, Hash32


class Figures(msgspec.Struct, frozen=True):
    answered: int = 0
    answered_ltz: int = 0
    bought: int = 0
    bought_cents: int = 0
    bought_ltz: int = 0
    other: int = 0
    """Rewards for check-ins and milestones."""
    other_ltz: int = 0
    minted: int = 0
    """Rewards whose mint the indexer has found."""
    minted_ltz: int = 0
    queued: int = 0
    in_flight: int = 0
    failed: int = 0
    delivered: int = 0
    """Webhooks `ltz_distributed` that were not revoked."""
    pending: int = 0
    exhausted: int = 0
    on_chain: int = 0
    """Mints under exactly a reward's reference."""
    on_chain_units: int = 0
    """In LTZ's smallest unit: a mint on chain may have any amount."""

    @classmethod
    def total(cls, figures: Iterable[Self]) -> Self:
        return cls(*(sum(column) for column in zip(*map(astuple, (cls(), *figures)), strict=True)))


class DifferingRow(msgspec.Struct, frozen=True):
    """A row on which sides disagree: the values of each, or None for a side without the row.

    `reason` is the explanation of a person who has acknowledged it.
    """

    id: str
    sides: Mapping[str, Mapping[str, object] | None]
    reason: str | None = None


class Disagreement(msgspec.Struct, frozen=True):
    """Rows of one kind: `count` in all, of which `rows` are the first."""

    kind: str
    meaning: str
    count: int
    rows: tuple[DifferingRow, ...]


class IndexedLtz(msgspec.Struct, frozen=True):
    """The index's totals of LTZ; block `number` is the last that the indexer has read."""

    chain_id: int
    genesis: Hash32
    ltz: Address
    first_block: int
    number: int
    hash: Hash32
    balances: int
    """The sum of all balances, in LTZ's smallest unit."""
    next_seq: int
    used: Mapping[int, int]
    """The words of LTZ's bitmap of references, by index, as computed from the indexed mints."""

    def words(self) -> list[int]:
        """The index of every word that may have a used reference, and of the word after them."""
        given_out = range(self.next_seq // REFERENCES_A_WORD + 2)
        return sorted({*given_out, *self.used})


def explained(
    difference: Disagreement, reasons: Mapping[str, str]
) -> tuple[Disagreement | None, Disagreement | None]:
    """The unacknowledged rows, and the acknowledged rows with their reasons, by row id."""
    left = tuple(row for row in difference.rows if row.id not in reasons)
    done = tuple(
        replace(row, reason=reasons[row.id]) for row in difference.rows if row.id in reasons
    )
    return (
        replace(difference, rows=left, count=difference.count - len(done)) if left else None,
        replace(difference, rows=done, count=len(done)) if done else None,
    )


def first_rows(difference: Disagreement, at_most: int) -> Disagreement:
    """The same with fewer rows named; the count stays."""
    return replace(difference, rows=difference.rows[:at_most])


def whole_ltz(units: int) -> int | Decimal:
    """LTZ as an integer if they are whole, else as an exact Decimal."""
    return ltz_of(units) if units % LTZ else units // LTZ


def reference_differences(
    on_chain: Mapping[int, int], indexed: Mapping[int, int]
) -> tuple[list[int], list[int]]:
    """The seqs that are used only on chain, and the seqs that are used only in the index."""
    words = sorted({*on_chain, *indexed})
    return (
        [seq for w in words for seq in _seqs(w, on_chain.get(w, 0) & ~indexed.get(w, 0))],
        [seq for w in words for seq in _seqs(w, indexed.get(w, 0) & ~on_chain.get(w, 0))],
    )


def _seqs(word: int, bits: int) -> Iterable[int]:
    first = word * REFERENCES_A_WORD
    return (first + bit for bit in range(bits.bit_length()) if bits >> bit & 1)

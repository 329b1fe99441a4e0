"""Books that agree: what each brand's come to, and how a disagreement is told.

LTZ are whole ones, dollars are cents. `Figures` add up; a brand that nothing happened to has zeros.
"""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from decimal import Decimal
from typing import Self

from ltzd.values import LTZ, Address, Hash32

REFERENCES_A_WORD = 256


@dataclass(frozen=True, slots=True)
class Figures:
    answered: int = 0
    answered_ltz: int = 0
    bought: int = 0
    bought_cents: int = 0
    bought_ltz: int = 0
    other: int = 0
    """Rewards for check-ins and milestones."""
    other_ltz: int = 0
    minted: int = 0
    """Rewards that the index has told of their mint."""
    minted_ltz: int = 0
    queued: int = 0
    in_flight: int = 0
    failed: int = 0
    delivered: int = 0
    """Webhooks `ltz_distributed` that were not taken back."""
    pending: int = 0
    exhausted: int = 0
    on_chain: int = 0
    """Mints under exactly a reward's reference."""
    on_chain_units: int = 0
    """LTZ's smallest unit: a mint may hold any amount."""

    @classmethod
    def total(cls, those: Iterable[Self]) -> Self:
        return cls(*(sum(column) for column in zip(*map(astuple, (cls(), *those)), strict=True)))


@dataclass(frozen=True, slots=True)
class Finding:
    """One row that disagrees: what each side says of it, None for a side that has no such row."""

    id: str
    sides: Mapping[str, Mapping[str, object] | None]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """`count` rows of one kind; the first of them are `findings`."""

    kind: str
    meaning: str
    count: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class IndexedLtz:
    """What the index says of LTZ as a whole; block `number` is the last that it has read."""

    chain_id: int
    ltz: Address
    first_block: int
    number: int
    hash: Hash32
    balances: int
    """Their sum, in LTZ's smallest unit."""
    next_seq: int
    used: Mapping[int, int]
    """Words of LTZ's bitmap of references, by place, as the index's mints would have it."""

    def words(self) -> list[int]:
        """Every word that may hold a used reference, and one where none may."""
        given_out = range(self.next_seq // REFERENCES_A_WORD + 2)
        return sorted({*given_out, *self.used})


def whole_ltz(units: int) -> int | Decimal:
    """LTZ without a fraction unless there is one; every digit is kept."""
    whole, rest = divmod(units, LTZ)
    return Decimal(f"{whole}.{rest:018d}".rstrip("0")) if rest else whole


def reference_differences(
    on_chain: Mapping[int, int], indexed: Mapping[int, int]
) -> tuple[list[int], list[int]]:
    """The seqs that only the chain has as used, and those that only the index has."""
    words = sorted({*on_chain, *indexed})
    return (
        [seq for w in words for seq in _seqs(w, on_chain.get(w, 0) & ~indexed.get(w, 0))],
        [seq for w in words for seq in _seqs(w, indexed.get(w, 0) & ~on_chain.get(w, 0))],
    )


def _seqs(word: int, bits: int) -> Iterable[int]:
    first = word * REFERENCES_A_WORD
    return (first + bit for bit in range(bits.bit_length()) if bits >> bit & 1)

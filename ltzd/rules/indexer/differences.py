"""How the rows of a table differ from the facts that nodes show."""

from collections.abc import Hashable, Mapping
from typing import Literal, TypeVar

import msgspec

DifferenceKind = Literal["missing", "foreign", "wrong"]

Key = TypeVar("Key", bound=Hashable)


class Difference(msgspec.Struct, frozen=True):
    """One fact that the index and the chain disagree about, and the table that it belongs to.

    A fact is missing if only the chain has it, foreign if only the table has it, and wrong if both
    have it with other values.
    """

    kind: DifferenceKind
    table: str
    block_number: int
    log_index: int
    transaction_hash: bytes


def compare_rows(
    on_chain: Mapping[Key, object], indexed: Mapping[Key, object]
) -> dict[Key, DifferenceKind]:
    """The keys whose rows differ, and how."""
    if on_chain == indexed:
        return {}
    kinds: dict[Key, DifferenceKind] = {
        key: "missing" if key not in indexed else "wrong"
        for key, row in on_chain.items()
        if key not in indexed or indexed[key] != row
    }
    kinds.update((key, "foreign") for key in indexed if key not in on_chain)
    return kinds

"""Tests a block's logs bloom for a contract's logs (Yellow Paper 4.3.1)."""

from collections.abc import Iterable
from functools import lru_cache

from ltzd.values import keccak

_BITS = 2048


@lru_cache(maxsize=1024)
def _mask(value: bytes) -> int:
    digest = keccak(value)
    mask = 0
    for start in (0, 2, 4):
        mask |= 1 << (int.from_bytes(digest[start : start + 2], "big") % _BITS)
    return mask


def may_hold(bloom: bytes, *values: bytes) -> bool:
    """Whether the bloom may hold all `values` (addresses, topics); False is certain.

    A chain that leaves its blooms empty also gives False: the caller must know such chains.
    """
    bits = int.from_bytes(bloom, "big")
    return all(bits & mask == mask for mask in map(_mask, values))


def may_hold_any(bloom: bytes, contract: bytes, topics: Iterable[bytes]) -> bool:
    """Whether the contract may have logged any of `topics`; False is certain, as above."""
    bits = int.from_bytes(bloom, "big")
    address = _mask(contract)
    return bits & address == address and any(bits & mask == mask for mask in map(_mask, topics))


def is_saturated(bloom: bytes) -> bool:
    """Whether more than half of the bits are set, so that values match by chance.

    A block of a hundred transfers sets this many: an eighth of all contracts then seem to have
    logged one of eight topics, and nearly all in a block of four hundred.
    """
    return int.from_bytes(bloom, "big").bit_count() > _BITS // 2


def chance(bloom: bytes, topics: int, *, is_known: bool) -> float:
    """The probability that a contract and one of so many topics match the bloom by chance.

    `is_known`: the contract is in the bloom for certain, so that only the topics match by chance.
    """
    match = (int.from_bytes(bloom, "big").bit_count() / _BITS) ** 3
    any_topic = 1 - (1 - match) ** topics
    return any_topic if is_known else match * any_topic

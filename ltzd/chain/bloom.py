"""Asks a block's logs bloom whether a contract can have logged in it (Yellow Paper 4.3.1)."""

from functools import lru_cache

from eth_hash.auto import keccak

_BITS = 2048


@lru_cache(maxsize=1024)
def _mask(value: bytes) -> int:
    digest = keccak(value)
    mask = 0
    for start in (0, 2, 4):
        mask |= 1 << (int.from_bytes(digest[start : start + 2], "big") % _BITS)
    return mask


def may_hold(bloom: bytes, *values: bytes) -> bool:
    """Whether the bloom may hold all `values` (addresses, topics): False is certain.

    An all-zero bloom of a chain that fills none in also says False; the caller must know such
    chains.
    """
    bits = int.from_bytes(bloom, "big")
    return all(bits & mask == mask for mask in map(_mask, values))

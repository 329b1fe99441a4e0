"""The root of the ordered trie in which a header commits to its block's receipts.

The trie's keys are the RLP of the positions 0, 1, 2 … (Yellow Paper, appendix D).
"""

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

from ltzd.chain.rlp import encode_integer, encode_list, encode_text
from ltzd.values import keccak

EMPTY_ROOT = keccak(encode_text(b""))

_Entry: TypeAlias = tuple[bytes, bytes]
"""A key as one byte for each nibble, and its value."""
_SHORT_NODE_BYTES = 32


def ordered_root(values: Sequence[bytes]) -> bytes:
    """The root of the trie that holds `values` under their positions. No value may be empty."""
    if not values:
        return EMPTY_ROOT
    entries = sorted(
        (_nibbles(encode_integer(position)), value) for position, value in enumerate(values)
    )
    return keccak(_node(entries, 0))


def _node(entries: Sequence[_Entry], depth: int) -> bytes:
    """The RLP of the node that holds `entries`, which share their first `depth` nibbles.

    The entries are sorted. No key is the beginning of another key, so that no branch has a value.
    """
    first, value = entries[0]
    if len(entries) == 1:
        return encode_list(encode_text(_path(first[depth:], is_leaf=True)) + encode_text(value))
    shared = _shared_length(first, entries[-1][0])
    if shared > depth:
        path = encode_text(_path(first[depth:shared], is_leaf=False))
        return encode_list(path + _reference(_node(entries, shared)))
    children = [encode_text(b"")] * 17
    for nibble, group in groupby(entries, key=lambda entry: entry[0][depth]):
        children[nibble] = _reference(_node(list(group), depth + 1))
    return encode_list(b"".join(children))


def _reference(node: bytes) -> bytes:
    return node if len(node) < _SHORT_NODE_BYTES else encode_text(keccak(node))


def _shared_length(first: bytes, last: bytes) -> int:
    """The length of the beginning that two keys share, and with them every key between them."""
    return next(
        position
        for position, (left, right) in enumerate(zip(first, last, strict=False))
        if left != right
    )


def _nibbles(key: bytes) -> bytes:
    return bytes(nibble for byte in key for nibble in (byte >> 4, byte & 15))


def _path(nibbles: bytes, *, is_leaf: bool) -> bytes:
    """Nibbles packed into bytes, with a prefix that tells their parity and the node's kind."""
    flag = 2 if is_leaf else 0
    padded = bytes((flag + 1,)) + nibbles if len(nibbles) % 2 else bytes((flag, 0)) + nibbles
    return bytes(high << 4 | low for high, low in zip(padded[::2], padded[1::2], strict=True))

"""The root of a Merkle-Patricia trie with the keys 0, 1, 2, …: a block's transactions or receipts.

The trie is built bottom-up in one pass, which is faster than inserts into py-evm's general trie.
"""

from collections.abc import Sequence

from ltzd.dev.tester_chain.execution.rlp_codec import Rlp, encode
from ltzd.values import Hash32, keccak

_Entry = tuple[bytes, bytes]

EMPTY_ROOT = Hash32(keccak(encode(b"")))


def ordered_root(items: Sequence[bytes]) -> Hash32:
    if not items:
        return EMPTY_ROOT
    entries = sorted((_nibbles(encode(index)), item) for index, item in enumerate(items))
    return Hash32(keccak(encode(_node(entries, 0))))


def _node(entries: list[_Entry], depth: int) -> Rlp:
    """The node of entries that share their first `depth` nibbles; no key is a prefix of another."""
    if len(entries) == 1:
        key, value = entries[0]
        return [_packed(key[depth:], leaf=True), value]
    shared = _shared_length(entries[0][0], entries[-1][0])
    if shared > depth:
        return [
            _packed(entries[0][0][depth:shared], leaf=False),
            _reference(_node(entries, shared)),
        ]
    return _branch(entries, depth)


def _branch(entries: list[_Entry], depth: int) -> Rlp:
    children: list[list[_Entry]] = [[] for _ in range(16)]
    for entry in entries:
        children[entry[0][depth]].append(entry)
    branch: list[Rlp] = [
        _reference(_node(child, depth + 1)) if child else b"" for child in children
    ]
    return [*branch, b""]


def _reference(node: Rlp) -> Rlp:
    encoded = encode(node)
    return node if len(encoded) < 32 else bytes(keccak(encoded))


def _nibbles(raw: bytes) -> bytes:
    return bytes(nibble for byte in raw for nibble in (byte >> 4, byte & 15))


def _shared_length(first: bytes, last: bytes) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b),
        min(len(first), len(last)),
    )


def _packed(nibbles: bytes, *, leaf: bool) -> bytes:
    """Hex-prefix encoding: a flag nibble for leaf or extension, odd or even length."""
    flag = 2 if leaf else 0
    padded = bytes((flag + 1,)) + nibbles if len(nibbles) % 2 else bytes((flag, 0)) + nibbles
    return bytes(padded[i] << 4 | padded[i + 1] for i in range(0, len(padded), 2))

"""RLP with types: the library's own functions have none."""

from typing import Any, cast

import rlp

Rlp = bytes | list["Rlp"]

RlpFault = rlp.exceptions.RLPException


def encode(item: object) -> bytes:
    """Bytes of nested lists of bytes and integers, or of what serializes itself."""
    encoder = cast("Any", rlp)
    return bytes(encoder.encode(item))


def decode(encoded: bytes) -> Rlp:
    """Raises RlpFault."""
    decoder = cast("Any", rlp)
    return cast("Rlp", decoder.decode(encoded))

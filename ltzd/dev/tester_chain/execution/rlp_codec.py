"""Typed wrappers of the rlp library, whose functions have no types."""

from typing import Any, cast

import rlp

Rlp = bytes | list["Rlp"]

RlpFault = rlp.exceptions.RLPException


def encode(item: object) -> bytes:
    """Encode nested lists of bytes and integers, and rlp's serializable objects."""
    encoder = cast("Any", rlp)
    return bytes(encoder.encode(item))


def decode(encoded: bytes) -> Rlp:
    """Raises RlpFault."""
    decoder = cast("Any", rlp)
    return cast("Rlp", decoder.decode(encoded))

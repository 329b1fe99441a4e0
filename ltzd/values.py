"""Addresses, hashes and amounts: types that carry their meaning and unit.

Addresses and hashes are bytes in memory and in PostgreSQL, and lower-case 0x-hex on the wire and in
logs (`hex_of`). HTTP answers show addresses with their EIP-55 checksum.
"""

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import NewType
from uuid import UUID

from eth_hash.backends import pysha3

Address = NewType("Address", bytes)
"""20 bytes."""
Hash32 = NewType("Hash32", bytes)
"""32 bytes: the hash of a block or a transaction."""
Reference = NewType("Reference", bytes)
"""32 bytes that name one reward on chain: uuid(16) | kind(1) | zero(7) | seq(8)."""
LtzUnits = NewType("LtzUnits", int)
"""An amount in LTZ's smallest unit: 10^18 units are one LTZ."""

LTZ = 10**18
ETHER = 10**18
"""Wei in one of the chain's coin."""
ZERO_ADDRESS = Address(bytes(20))
BRAND_ID = re.compile(r"0x[0-9a-f]{40}")
"""A brand's id on the wire, in files and in TXT records: its address in lower case."""

keccak: Callable[[bytes], bytes] = pysha3.keccak256
"""Keccak-256 by eth-hash's pysha3 back end, which is entirely in C."""


def hex_of(raw: bytes) -> str:
    return "0x" + raw.hex()


def bytes_of(text: str) -> bytes:
    """The bytes of 0x-hex text. Raises ValueError."""
    if not text.startswith("0x"):
        raise ValueError("expected text that starts with 0x")
    return bytes.fromhex(text[2:])


def address_of(text: str) -> Address:
    """The address in 0x-hex text of any letter case. Raises ValueError."""
    raw = bytes_of(text)
    if len(raw) != 20:
        raise ValueError(f"an address has 20 bytes, this text has {len(raw)}")
    return Address(raw)


def hash_of(text: str) -> Hash32:
    """The 32-byte hash in 0x-hex text. Raises ValueError."""
    raw = bytes_of(text)
    if len(raw) != 32:
        raise ValueError(f"a hash has 32 bytes, this text has {len(raw)}")
    return Hash32(raw)


_CASE = 0x20
"""The ASCII bit that a small letter has and its capital has not; digits lack 0x40 instead."""
_LETTERS = int.from_bytes(b"\x40" * 40, "big")
_TO_CASE = bytes.maketrans(
    b"0123456789abcdef", bytes(_CASE if digit >= 8 else 0 for digit in range(16))
)


@lru_cache(maxsize=65_536)
def checksummed(address: Address) -> str:
    """The address in 0x-hex whose letter case is its checksum (EIP-55)."""
    digits = address.hex().encode()
    marks = keccak(digits)[:20].hex().encode().translate(_TO_CASE)
    # All forty digits at once: a marked letter loses the bit that makes it small.
    text = int.from_bytes(digits, "big")
    capitals = int.from_bytes(marks, "big") & (text & _LETTERS) >> 1
    return "0x" + (text ^ capitals).to_bytes(40, "big").decode()


def has_right_case(text: str) -> bool:
    """Whether the letters of an address in 0x-hex are of one case, or as its checksum (EIP-55)."""
    digits = text[2:]
    return digits in {digits.lower(), digits.upper()} or text == checksummed(address_of(text))


@lru_cache(maxsize=8_192)
def iso(at: datetime) -> str:
    """ISO 8601 in UTC with milliseconds, the format of times in every answer."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_or_none(at: datetime | None) -> str | None:
    return None if at is None else iso(at)


def reward_reference(reward: UUID, kind: int, seq: int) -> Reference:
    """The reference of a reward, which LTZ mints once only (its bitmap is over `seq`)."""
    return Reference(reward.bytes + bytes((kind,)) + bytes(7) + seq.to_bytes(8, "big"))

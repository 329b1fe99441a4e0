"""Addresses, hashes and amounts: plain types that carry their meaning and unit.

On the wire and in logs an address or hash is lower-case 0x-hex (`hex_of`); in memory and in
PostgreSQL it is bytes. Answers over HTTP show addresses with their EIP-55 checksum.
"""

from datetime import datetime
from functools import lru_cache
from typing import NewType
from uuid import UUID

from eth_hash.auto import keccak

Address = NewType("Address", bytes)
"""20 bytes."""
Hash32 = NewType("Hash32", bytes)
"""32 bytes: of a block or a transaction."""
Reference = NewType("Reference", bytes)
"""32 bytes naming one reward on chain: uuid(16) | kind(1) | zero(7) | seq(8)."""
Wei = NewType("Wei", int)
"""The native coin's smallest unit."""
LtzUnits = NewType("LtzUnits", int)
"""LTZ's smallest unit: 10^18 of them are one LTZ."""

LTZ = 10**18
ZERO_ADDRESS = Address(bytes(20))


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


@lru_cache(maxsize=65_536)
def checksummed(address: Address) -> str:
    """EIP-55: the letters' case of an address is its checksum."""
    digits = address.hex()
    mask = keccak(digits.encode()).hex()
    return "0x" + "".join(
        digit.upper() if int(nibble, 16) >= 8 else digit
        for digit, nibble in zip(digits, mask, strict=False)
    )


def iso(at: datetime) -> str:
    """ISO 8601 in UTC with milliseconds, as every answer shows times."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def reward_reference(reward: UUID, kind: int, seq: int) -> Reference:
    """The reference that LTZ refuses to mint twice (its bitmap is over `seq`)."""
    return Reference(reward.bytes + bytes((kind,)) + bytes(7) + seq.to_bytes(8, "big"))

"""Encodes and decodes the ABI's 32-byte words by hand, for frequent calls: eth-abi is too slow.

Strict in both directions. ValueError is raised, and no other exception, for values that the type
cannot hold, dirty upper bytes, missing bytes and trailing bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ltzd.rules.indexer.log_position import LogPosition
from ltzd.values import Address, bytes_of, hash_of, keccak


def selector(signature: str) -> bytes:
    return keccak(signature.encode())[:4]


def topic(signature: str) -> bytes:
    return keccak(signature.encode())


def encode_address(value: bytes) -> bytes:
    if len(value) != 20:
        raise ValueError(f"an address has 20 bytes, this has {len(value)}")
    return bytes(12) + value


def encode_uint(value: int, bits: int = 256) -> bytes:
    if not 0 <= value < 1 << bits:
        raise ValueError(f"a uint{bits} lies between 0 and 2^{bits} - 1")
    return value.to_bytes(32, "big")


def encode_bytes32(value: bytes) -> bytes:
    if len(value) != 32:
        raise ValueError(f"bytes32 has 32 bytes, this has {len(value)}")
    return value


def encode_bytes(value: bytes) -> bytes:
    """The tail of a `bytes` argument: length, bytes, zeros up to a whole word."""
    return encode_uint(len(value)) + value + bytes(-len(value) % 32)


def encode_bytes_list(values: Sequence[bytes]) -> bytes:
    """The tail of a `bytes[]` argument: count, offsets, then each element with its length."""
    tails = [encode_bytes(value) for value in values]
    offset, heads = 32 * len(values), []
    for tail in tails:
        heads.append(encode_uint(offset))
        offset += len(tail)
    return b"".join((encode_uint(len(values)), *heads, *tails))


class WordReader:
    """Reads words one after the other; `end` raises ValueError if any are left.

    A dynamic value must be the last argument, and stand where every encoder puts it: right behind
    its offset, in order, without gaps.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def word(self) -> bytes:
        word = self._data[self._at : self._at + 32]
        if len(word) != 32:
            raise ValueError("the data is too short")
        self._at += 32
        return word

    def uint(self, bits: int = 256) -> int:
        value = int.from_bytes(self.word(), "big")
        if value >> bits:
            raise ValueError(f"the word is no uint{bits}")
        return value

    def address(self) -> Address:
        word = self.word()
        if any(word[:12]):
            raise ValueError("the word is no address")
        return Address(word[12:])

    def boolean(self) -> bool:
        return self.uint(1) == 1

    def last_bytes_argument(self) -> bytes:
        """The last argument, of type `bytes`."""
        self._expect_here(self.uint())
        return self._bytes()

    def last_bytes_list_argument(self) -> list[bytes]:
        """The last argument, of type `bytes[]`."""
        self._expect_here(self.uint())
        count = self.uint()
        first = self._at
        offsets = [self.uint() for _ in range(count)]
        values = []
        for offset in offsets:
            self._expect_here(first + offset)
            values.append(self._bytes())
        return values

    def end(self) -> None:
        """Raises ValueError if data is left."""
        if self._at != len(self._data):
            raise ValueError("the data is too long")

    def _expect_here(self, offset: int) -> None:
        if offset != self._at:
            raise ValueError("an offset is not the canonical one")

    def _bytes(self) -> bytes:
        length = self.uint()
        end = self._at + length
        value, padding = self._data[self._at : end], self._data[end : end + -length % 32]
        if len(value) != length or len(padding) != -length % 32:
            raise ValueError("the data is too short")
        if any(padding):
            raise ValueError("the padding is not zero")
        self._at = end + len(padding)
        return value


class LogReader:
    """A log of a node: topics as bytes; indexed arguments and data as words to read."""

    def __init__(self, log: Mapping[str, Any]) -> None:
        try:
            self.topics = [hash_of(topic) for topic in log["topics"]]
            self.data = WordReader(bytes_of(log["data"]))
            self.position = LogPosition(
                int(log["blockNumber"], 16),
                hash_of(log["blockHash"]),
                int(log["logIndex"], 16),
                hash_of(log["transactionHash"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("the log is malformed") from error
        self.indexed = WordReader(b"".join(self.topics[1:]))

    @property
    def topic(self) -> bytes:
        """The first topic; empty for a log without topics."""
        return self.topics[0] if self.topics else b""

    def end(self) -> None:
        self.indexed.end()
        self.data.end()

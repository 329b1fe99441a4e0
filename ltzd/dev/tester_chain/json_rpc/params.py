"""Reads the parameters of a call by position.

A malformed parameter raises JsonRpcError -32602 with its name. Quantities are 0x-hex; plain numbers
are accepted too, since anvil's tools send both.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

import msgspec

from ltzd.dev.tester_chain.block_tree import BlockTree
from ltzd.dev.tester_chain.errors import invalid_parameter, refused
from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.values import Address, Hash32, bytes_of

_HEX_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,64}")
_WORD: Final = 2**256 - 1
_TAGS: Final = ("latest", "pending", "safe", "finalized", "earliest")


class Params:
    """Positions are those of the method's documentation; null counts as missing."""

    def __init__(self, values: Sequence[object]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def given(self, position: int) -> object:
        return self._values[position] if position < len(self._values) else None

    def required(self, position: int, name: str) -> object:
        value = self.given(position)
        if value is None:
            raise invalid_parameter(name, f"missing value for required argument {position}")
        return value

    def quantity(
        self, position: int, name: str, default: int | None = None, *, at_most: int = _WORD
    ) -> int:
        value = self.given(position)
        if value is None and default is not None:
            return default
        return quantity(self.required(position, name), name, at_most=at_most)

    def data(self, position: int, name: str) -> bytes:
        return data(self.required(position, name), name)

    def address(self, position: int, name: str = "address") -> Address:
        return address(self.required(position, name), name)

    def hash32(self, position: int, name: str) -> Hash32:
        return hash32(self.required(position, name), name)

    def flag(self, position: int, name: str, *, default: bool) -> bool:
        value = self.given(position)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise invalid_parameter(name, "expected true or false")
        return value

    def mapping(self, position: int, name: str) -> Mapping[str, object]:
        value = self.required(position, name)
        if not isinstance(value, dict):
            raise invalid_parameter(name, "expected an object")
        return cast("dict[str, object]", value)

    def block(
        self, position: int, name: str = "block", *, default: str = "latest"
    ) -> "BlockChoice":
        value = self.given(position)
        return BlockChoice(tag=default) if value is None else block_choice(value, name)


class BlockChoice(msgspec.Struct, frozen=True):
    """A block parameter: exactly one of tag, number and hash is set."""

    tag: str | None = None
    number: int | None = None
    hash: Hash32 | None = None
    must_be_canonical: bool = False

    @property
    def is_pending(self) -> bool:
        return self.tag == "pending"

    def find(self, block_tree: BlockTree) -> MinedBlock | None:
        """The block if it exists; for "pending", the head."""
        if self.hash is not None:
            return block_tree.by_hash(self.hash)
        if self.number is not None:
            return block_tree.at(self.number)
        match self.tag:
            case "earliest":
                return block_tree.at(0)
            case "safe":
                return block_tree.safe
            case "finalized":
                return block_tree.finalized
        return block_tree.head

    def allows(self, block_tree: BlockTree, block: MinedBlock) -> bool:
        """False for an orphaned block if the caller requires a canonical one (EIP-1898)."""
        return not self.must_be_canonical or block_tree.is_canonical(block)

    def existing(self, block_tree: BlockTree) -> MinedBlock:
        block = self.find(block_tree)
        if block is None:
            what = "header not found" if self.hash is None else "header for hash not found"
            raise refused(what)
        if not self.allows(block_tree, block):
            raise refused("hash is not currently canonical")
        return block


def quantity(value: object, name: str, *, at_most: int = _WORD) -> int:
    number = -1
    if isinstance(value, str) and _HEX_NUMBER.fullmatch(value):
        number = int(value, 16)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    if not 0 <= number <= at_most:
        raise invalid_parameter(name, f"expected a quantity as 0x-hex, at most {at_most:#x}")
    return number


def data(value: object, name: str) -> bytes:
    try:
        return bytes_of(cast("str", value))
    except (ValueError, AttributeError, TypeError):
        raise invalid_parameter(name, "expected bytes as 0x-hex of even length") from None


def address(value: object, name: str) -> Address:
    raw = data(value, name)
    if len(raw) != 20:
        raise invalid_parameter(name, f"an address has 20 bytes, this has {len(raw)}")
    return Address(raw)


def hash32(value: object, name: str) -> Hash32:
    raw = data(value, name)
    if len(raw) != 32:
        raise invalid_parameter(name, f"a hash has 32 bytes, this has {len(raw)}")
    return Hash32(raw)


def block_choice(value: object, name: str) -> BlockChoice:
    if isinstance(value, dict):
        return _block_object(cast("dict[str, object]", value), name)
    if isinstance(value, str):
        if value in _TAGS:
            return BlockChoice(tag=value)
        if len(value) == 66:
            return BlockChoice(hash=hash32(value, name))
    return BlockChoice(number=quantity(value, name))


def _block_object(value: Mapping[str, object], name: str) -> BlockChoice:
    """EIP-1898: a block by `blockHash` or `blockNumber`."""
    if (block_hash := value.get("blockHash")) is not None:
        if value.get("blockNumber") is not None:
            raise invalid_parameter(
                name, "cannot specify both blockHash and blockNumber, choose one or the other"
            )
        return BlockChoice(
            hash=hash32(block_hash, f"{name}.blockHash"),
            must_be_canonical=value.get("requireCanonical") is True,
        )
    if (number := value.get("blockNumber")) is not None:
        return block_choice(number, f"{name}.blockNumber")
    raise invalid_parameter(name, "expected blockHash or blockNumber")

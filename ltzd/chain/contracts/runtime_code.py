"""Compares deployed code with the compiled contracts, immutables included.

A contract that an earlier version has deployed counts as this version's if its ABI is the same
(`artifacts.former_bytecodes`).

The contracts are compiled without metadata, so their creation code ends with the runtime code. Its
immutables are words of zeros behind PUSH32, which the constructor fills in.
"""

from collections.abc import Container
from functools import cache

from ltzd.chain.contracts import artifacts
from ltzd.chain.typed_data import DOMAIN_NAMES, domain_separator
from ltzd.values import Address, keccak

_PUSH1, _PUSH32 = 0x60, 0x7F
_INVALID = b"\xfe"
"""The last instruction of creation code by solc."""
_START = bytes.fromhex("6080604052")
"""The first instructions of code by solc, which set the free memory pointer."""


def matches_source(contract: str, code: bytes, chain_id: int, at: Address, ltz: Address) -> bool:
    """Whether `code` is `contract`, deployed at `at` on this chain and paid in `ltz`."""
    return _matches(contract, code, _immutables(contract, chain_id, at, ltz))


def build_of(code: bytes) -> str | None:
    """The contract that `code` was compiled from, whatever its immutables.

    Returns None for other code.
    """
    return next((name for name in artifacts.CONTRACTS if _matches(name, code, None)), None)


def _matches(contract: str, code: bytes, expected: Container[bytes] | None) -> bool:
    return any(_fits(template, code, expected) for template in _templates(contract))


def _fits(template: bytes, code: bytes, expected: Container[bytes] | None) -> bool:
    """Compare the code; immutables may hold only `expected` words, or any words without it."""
    if len(code) != len(template):
        return False
    index = 0
    while index < len(code):
        operation = template[index]
        width = operation - _PUSH1 + 1 if _PUSH1 <= operation <= _PUSH32 else 0
        end = index + 1 + width
        if code[index:end] != template[index:end]:
            is_immutable = operation == _PUSH32 and template[index + 1 : end] == bytes(32)
            if (
                not is_immutable
                or code[index] != operation
                or (expected is not None and code[index + 1 : end] not in expected)
            ):
                return False
        index = end
    return True


@cache
def _templates(contract: str) -> list[bytes]:
    """The runtime code of each build before its immutables are filled in."""
    builds = [artifacts.bytecode(contract), *artifacts.former_bytecodes(contract)]
    return [build[build.index(_INVALID + _START) + len(_INVALID) :] for build in builds]


def _immutables(contract: str, chain_id: int, at: Address, ltz: Address) -> set[bytes]:
    """The words that OpenZeppelin's EIP712 and the contract's constructor keep in the code."""
    name = DOMAIN_NAMES[contract]
    words = {
        bytes(12) + at,
        chain_id.to_bytes(32, "big"),
        keccak(name.encode()),
        keccak(b"1"),
        _short_string(name),
        _short_string("1"),
        domain_separator(name, chain_id, at),
    }
    return words if contract == "LTZ" else words | {bytes(12) + ltz}


def _short_string(text: str) -> bytes:
    """OpenZeppelin's ShortString: the text, and its length in the last byte."""
    return text.encode().ljust(31, b"\0") + bytes((len(text),))

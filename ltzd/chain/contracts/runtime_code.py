"""Whether the code at an address is what our sources compile to, immutables included.

Without metadata, the compiled creation code ends with the runtime code, whose immutables are words
of zeros behind PUSH32; the constructor fills them in.
"""

from functools import cache

from ltzd.chain.contracts import artifacts
from ltzd.chain.typed_data import DOMAIN_NAMES, domain_separator
from ltzd.values import Address, keccak

_PUSH1, _PUSH32 = 0x60, 0x7F
_INVALID = b"\xfe"
"""solc's last instruction of the creation code."""
_BEGINNING = bytes.fromhex("6080604052")
"""How solc begins code: the free memory pointer."""


def matches_source(contract: str, code: bytes, chain_id: int, at: Address, ltz: Address) -> bool:
    """Whether `code` is `contract`, deployed at `at` on this chain and paid in `ltz`."""
    template = _template(contract)
    if len(code) != len(template):
        return False
    expected = _immutables(contract, chain_id, at, ltz)
    place = 0
    while place < len(code):
        operation = template[place]
        width = operation - _PUSH1 + 1 if _PUSH1 <= operation <= _PUSH32 else 0
        end = place + 1 + width
        if code[place:end] != template[place:end]:
            is_immutable = operation == _PUSH32 and template[place + 1 : end] == bytes(32)
            if (
                not is_immutable
                or code[place] != operation
                or code[place + 1 : end] not in expected
            ):
                return False
        place = end
    return True


@cache
def _template(contract: str) -> bytes:
    """The runtime code before its immutables are filled in."""
    creation = artifacts.bytecode(contract)
    return creation[creation.index(_INVALID + _BEGINNING) + len(_INVALID) :]


def _immutables(contract: str, chain_id: int, at: Address, ltz: Address) -> set[bytes]:
    """What OpenZeppelin's EIP712 and our constructor keep in the code."""
    name = DOMAIN_NAMES[contract]
    words = {
        bytes(12) + at,
        chain_id.to_bytes(32, "big"),
        keccak(name.encode()),
        keccak(b"1"),
        _short(name),
        _short("1"),
        domain_separator(name, chain_id, at),
    }
    return words if contract == "LTZ" else words | {bytes(12) + ltz}


def _short(text: str) -> bytes:
    """OpenZeppelin's ShortString: the text, and its length in the last byte."""
    return text.encode().ljust(31, b"\0") + bytes((len(text),))

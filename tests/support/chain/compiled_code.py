"""The code of ltzd's contracts as a chain would hold it, for nodes that execute nothing."""

from functools import cache

from ltzd.chain.contracts import artifacts
from ltzd.values import Address

_START = b"\xfe" + bytes.fromhex("6080604052")
_IMMUTABLE = b"\x7f" + bytes(32)


@cache
def code_at(contract: str, at: Address) -> bytes:
    """The runtime code with the contract's own address in every immutable."""
    creation = artifacts.bytecode(contract)
    template = creation[creation.index(_START) + 1 :]
    return template.replace(_IMMUTABLE, b"\x7f" + bytes(12) + at)

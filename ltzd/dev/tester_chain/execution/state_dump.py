"""The accounts of a state as anvil dumps them: gzip'd JSON, and back.

The state's tries have hashes of addresses and slots as keys, so a dump holds
the addresses and slots that this process has written. Blocks and transactions of a
dump are neither written nor read.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from ltzd.dev.tester_chain.errors import invalid_parameter
from ltzd.dev.tester_chain.execution.overrides import AccountOverride, Overrides
from ltzd.dev.tester_chain.execution.state import EvmState
from ltzd.values import Address, bytes_of, hex_of

_BYTES_AT_MOST = 1 << 30


def dumped(state: EvmState, written: Mapping[Address, set[int]], number: int) -> bytes:
    # Copies, because threads that run calls add to both.
    copied = [(address, list(slots)) for address, slots in list(written.items())]
    accounts = {hex_of(address): _account(state, address, slots) for address, slots in copied}
    content: dict[str, object] = {
        "block": None,
        "accounts": {address: account for address, account in accounts.items() if account},
        "best_block_number": number,
        "blocks": [],
        "transactions": [],
        "historical_states": None,
    }
    return gzip.compress(json.dumps(content).encode())


def loader(dump: bytes) -> Callable[[EvmState], None]:
    """A change that sets each account of the dump and keeps all others. Raises JsonRpcError."""
    try:
        content = json.loads(_unpacked(dump))
        accounts = {
            Address(_sized(address, 20)): _override(cast("dict[str, Any]", account))
            for address, account in content["accounts"].items()
        }
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        OSError,
        zlib.error,
    ) as error:
        raise invalid_parameter("state", "failed to decode state dump") from error
    return Overrides(accounts).apply


def _unpacked(dump: bytes) -> bytes:
    """JSON, as anvil's file has it, or gzip'd, as its method answers."""
    if not dump.startswith(b"\x1f\x8b"):
        return dump
    decompressor = zlib.decompressobj(wbits=31)
    content = decompressor.decompress(dump, _BYTES_AT_MOST)
    if not decompressor.eof:
        raise ValueError("truncated, or too large")
    return content


def _account(state: EvmState, address: Address, slots: Iterable[int]) -> dict[str, object] | None:
    """Return None if the account does not exist."""
    storage = {
        _word(slot): _word(value) for slot in slots if (value := state.storage(address, slot))
    }
    nonce, balance, code = state.nonce(address), state.balance(address), state.code(address)
    if not (nonce or balance or code or storage):
        return None
    return {"nonce": nonce, "balance": hex(balance), "code": hex_of(code), "storage": storage}


def _override(account: Mapping[str, Any]) -> AccountOverride:
    return AccountOverride(
        balance=_number(account["balance"], 256),
        nonce=_number(account["nonce"], 64),
        code=bytes_of(account["code"]),
        slots={
            _number(slot, 256): _number(value, 256) for slot, value in account["storage"].items()
        },
        replaces_storage=True,
    )


def _number(value: str | int, bits: int) -> int:
    number = int(value, 16) if isinstance(value, str) else int(value)
    if number < 0 or number.bit_length() > bits:
        raise ValueError("out of range")
    return number


def _sized(value: str, length: int) -> bytes:
    raw = bytes_of(value)
    if len(raw) != length:
        raise ValueError("an address of another length")
    return raw


def _word(number: int) -> str:
    return f"0x{number:064x}"

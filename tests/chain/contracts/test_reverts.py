"""Any revert data becomes text; web3 and eth-abi are the oracle for its content."""

from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st
from web3 import Web3

from ltzd.chain.contracts import artifacts, reverts

BY_NAME: dict[str, dict[str, Any]] = {
    entry["name"]: entry
    for contract in artifacts.CONTRACTS
    for entry in artifacts.artifact(contract)["abi"]
    if entry["type"] == "error"
}
ERRORS = list(BY_NAME.values())

VALUES: dict[str, object] = {
    "address": "0x" + "ab" * 20,
    "uint256": 5,
    "uint48": 48,
    "uint40": 40,
    "uint8": 8,
    "bytes32": b"\x07" * 32,
    "string": "a text",
}


def encoded(name: str, *arguments: object) -> bytes:
    """A custom error of any of the four contracts, by web3's selector and eth-abi's arguments."""
    types = [each["type"] for each in BY_NAME[name]["inputs"]]
    selector = Web3.keccak(text=f"{name}({','.join(types)})")[:4]
    return bytes(selector) + encode(types, list(arguments))


def sentence(text: str) -> bytes:
    return bytes(Web3.keccak(text="Error(string)")[:4]) + encode(["string"], [text])


def panic(code: int) -> bytes:
    return bytes(Web3.keccak(text="Panic(uint256)")[:4]) + encode(["uint256"], [code])


@pytest.mark.parametrize("name", BY_NAME)
def test_every_error_of_the_four_contracts_is_shown_with_its_name_and_fields(name: str) -> None:
    inputs = BY_NAME[name]["inputs"]
    data = encoded(name, *(VALUES[each["type"]] for each in inputs))

    assert reverts.error_name(data) == name
    reason = reverts.describe(data)
    assert reason.startswith(f"{name}(")
    assert all(f"{each['name']}: " in reason for each in inputs)


def test_a_custom_error_shows_its_values() -> None:
    data = encoded("MintLimitExceeded", "0x" + "ab" * 20, 5 * 10**18, 3)
    assert reverts.describe(data) == (
        f"MintLimitExceeded(minter: 0x{'ab' * 20}, wanted: 5000000000000000000, available: 3)"
    )
    assert reverts.describe(encoded("ZeroAmount")) == "ZeroAmount()"
    assert reverts.describe(encoded("RefAlreadyUsed", b"\x07" * 32)).endswith("07" * 32 + ")")


def test_a_revert_string_is_shown_unchanged() -> None:
    assert reverts.error_name(sentence("not today")) == "Error"
    assert reverts.describe(sentence("not today")) == "not today"
    assert reverts.describe(sentence("")) == "reverted without a reason"


def test_a_panic_is_shown_in_words() -> None:
    assert reverts.error_name(panic(0x12)) == "Panic"
    assert reverts.describe(panic(0x12)) == "Panic: division by zero"
    assert reverts.describe(panic(0x99)) == "Panic: code 0x99"


def test_an_unknown_error_is_shown_by_its_selector() -> None:
    assert reverts.error_name(bytes.fromhex("deadbeef") + bytes(32)) == "0xdeadbeef"
    assert reverts.describe(bytes.fromhex("deadbeef01")) == "0xdeadbeef01"
    assert reverts.error_name(b"\x01") == "0x01"


def test_empty_revert_data_has_no_reason() -> None:
    assert reverts.error_name(b"") == ""
    assert reverts.describe(b"") == "reverted without a reason"


def test_malformed_arguments_are_shown_in_hex() -> None:
    assert reverts.describe(encoded("MintLimitExceeded", VALUES["address"], 5, 3)[:40]) == (
        "MintLimitExceeded with malformed arguments 0x" + "00" * 12 + "ab" * 20 + "00" * 4
    )
    assert "malformed" in reverts.describe(sentence("cut")[:50])
    assert "malformed" in reverts.describe(panic(1)[:8])


def test_a_revert_string_cannot_forge_lines_or_fill_the_log() -> None:
    text = reverts.describe(sentence("a\nb\x1b[31mc\u202e"))
    assert text.isprintable()
    assert text.startswith("a\N{REPLACEMENT CHARACTER}b")
    assert len(reverts.describe(sentence("x" * 100_000))) == 200
    not_utf8 = sentence("xyz").replace(b"xyz", b"x\xffz")
    assert reverts.describe(not_utf8) == "x\N{REPLACEMENT CHARACTER}z"


@given(st.binary(max_size=300))
def test_any_bytes_have_a_name_and_a_bounded_printable_reason(data: bytes) -> None:
    assert len(reverts.error_name(data)) < 100
    reason = reverts.describe(data)
    assert reason
    assert reason.isprintable()
    assert len(reason) < 300


@given(st.sampled_from(ERRORS), st.binary(max_size=200))
def test_any_arguments_of_a_known_error_have_a_reason(
    entry: dict[str, Any], arguments: bytes
) -> None:
    types = ",".join(each["type"] for each in entry["inputs"])
    data = bytes(Web3.keccak(text=f"{entry['name']}({types})")[:4]) + arguments

    assert reverts.describe(data).startswith(entry["name"])


@given(st.text(max_size=100))
def test_a_printable_revert_string_is_unchanged(text: str) -> None:
    reason = reverts.describe(sentence(text))
    if text.isprintable() and text:
        assert reason == text


def test_two_contracts_that_share_an_error_mean_the_same() -> None:
    shapes: dict[str, set[tuple[str, ...]]] = {}
    for contract in artifacts.CONTRACTS:
        for entry in artifacts.artifact(contract)["abi"]:
            if entry["type"] == "error":
                fields = tuple(f"{field['type']} {field['name']}" for field in entry["inputs"])
                shapes.setdefault(entry["name"], set()).add(fields)

    assert {name: contracts for name, contracts in shapes.items() if len(contracts) > 1} == {}


def test_an_error_of_ltz_that_another_contract_forwards_is_decoded() -> None:
    data = encoded("ERC20InsufficientAllowance", "0x" + "ab" * 20, 5, 7)

    assert reverts.describe(data) == (
        f"ERC20InsufficientAllowance(spender: 0x{'ab' * 20}, allowance: 5, needed: 7)"
    )


def test_an_enum_is_shown_by_its_number() -> None:
    data = encoded("NotLocked", b"\x07" * 32, 3)

    assert reverts.describe(data).endswith(", s: 3)")

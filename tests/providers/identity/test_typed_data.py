"""EIP-712 digests of any types, the data that are refused, and the signers of signatures."""

import subprocess
import sys
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from eth_hash.auto import keccak
from hypothesis import given
from hypothesis import strategies as st

from ltzd.providers.identity.typed_data import digest_of, normalised, signer_of, to_wire
from ltzd.values import address_of

MAIL: dict[str, Any] = {
    "types": {
        "EIP712Domain": [
            {"name": "name", "type": "string"},
            {"name": "version", "type": "string"},
            {"name": "chainId", "type": "uint256"},
            {"name": "verifyingContract", "type": "address"},
        ],
        "Person": [{"name": "name", "type": "string"}, {"name": "wallet", "type": "address"}],
        "Mail": [
            {"name": "from", "type": "Person"},
            {"name": "to", "type": "Person"},
            {"name": "contents", "type": "string"},
        ],
    },
    "primaryType": "Mail",
    "domain": {
        "name": "Ether Mail",
        "version": "1",
        "chainId": 1,
        "verifyingContract": "0xCcCCccccCCCCcCCCCCCcCcCccCcCCCcCcccccccC",
    },
    "message": {
        "from": {"name": "Cow", "wallet": "0xCD2a3d9F938E13CD947Ec05AbC7FE734Df8DD826"},
        "to": {"name": "Bob", "wallet": "0xbBbBBBBbbBBBbbbBbbBbbbbBBbBbbbbBbBbbBBbB"},
        "contents": "Hello, Bob!",
    },
}
ADDRESSES = st.binary(min_size=20, max_size=20)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(exclude_categories=["Cs"])),
    "bytes": st.binary(),
    "bool": st.booleans(),
    "address": ADDRESSES.map(lambda raw: "0x" + raw.hex()),
    "uint256": st.integers(0, 2**256 - 1),
    "uint8": st.integers(0, 255),
    "int256": st.integers(-(2**255), 2**255 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "bytes32": st.binary(min_size=32, max_size=32),
    "bytes4": st.binary(min_size=4, max_size=4),
}


@st.composite
def typed_data(draw: st.DrawFn) -> dict[str, Any]:
    """Two structs, the first inside the second, with arrays of fixed and of any length."""
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5))
    leaf = [{"name": f"f{place}", "type": kind} for place, kind in enumerate(kinds)]
    leaves = st.fixed_dictionaries({f"f{n}": VALUES[kind] for n, kind in enumerate(kinds)})
    kind = draw(st.sampled_from(sorted(VALUES)))
    many = draw(st.lists(VALUES[kind], max_size=3))
    pairs = [[draw(VALUES[kind]) for _ in range(2)] for _ in range(draw(st.integers(0, 2)))]
    return {
        "types": {
            "Leaf": leaf,
            "Root": [
                {"name": "leaf", "type": "Leaf"},
                {"name": "leaves", "type": "Leaf[]"},
                {"name": "many", "type": f"{kind}[]"},
                {"name": "pairs", "type": f"{kind}[2][]"},
            ],
        },
        "primaryType": "Root",
        "domain": {"name": draw(VALUES["string"]), "chainId": draw(st.integers(1, 2**64))},
        "message": {
            "leaf": draw(leaves),
            "leaves": draw(st.lists(leaves, max_size=2)),
            "many": many,
            "pairs": pairs,
        },
    }


def oracle(data: dict[str, Any]) -> bytes:
    message = encode_typed_data(full_message=data)
    return keccak(b"\x19" + message.version + message.header + message.body)


@given(data=typed_data())
def test_a_digest_is_that_of_eth_account(data: dict[str, Any]) -> None:
    assert digest_of(data) == oracle(data)


@given(data=typed_data())
def test_the_wire_says_the_same_in_json_that_nobody_rounds(data: dict[str, Any]) -> None:
    wire = to_wire(data)
    sent = {**wire, "primaryType": wire["primary_type"]}

    assert digest_of(sent) == digest_of(data)
    assert all(abs(number) < 2**53 for number in numbers_in(wire))


def numbers_in(value: object) -> list[int]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for each in value for number in numbers_in(each)]
    assert isinstance(value, str | int)
    return [value] if isinstance(value, int) else []


def test_the_example_of_the_standard_has_its_digest() -> None:
    expected = "be609aee343fb3c4b28e1df9e632fca64fcfaede20f02e86244efddf30957bd2"

    assert digest_of(MAIL).hex() == expected


def test_a_domain_whose_type_is_left_out_has_the_type_of_its_fields() -> None:
    types = {name: fields for name, fields in MAIL["types"].items() if name != "EIP712Domain"}

    assert digest_of({**MAIL, "types": types}) == digest_of(MAIL)


@pytest.mark.parametrize(
    "changes",
    [
        {"types": {}},
        {"types": {"Mail": [{"name": "from", "type": "nothing"}]}},
        {"types": {"Mail": [{"name": "from", "type": "uint256"}]}},
        {"types": {"Mail": [{"name": "contents", "type": "uint256"}]}},
        {"types": {"Mail": [{"name": "contents", "type": "bool"}]}},
        {"types": {"Mail": [{"name": "contents", "type": "bytes4"}]}},
        {"types": {"Mail": [{"name": "from", "type": "Mail"}]}, "message": None},
        {"primaryType": "Letter"},
        {"domain": None},
        {"domain": {"chainId": -1}},
        {"domain": {"chainId": True}},
        {"message": {}},
        {"message": []},
    ],
    ids=range(13),
)
def test_what_is_no_typed_data_is_told_as_a_value_error(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        digest_of({**MAIL, **changes})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("uint8[2]", [1]),
        ("uint8[2]", [1, 2, 3]),
        ("uint8[]", None),
        ("uint8", None),
        ("uint8", 256),
        ("uint8", True),
        ("uint", 5),
        ("int", 5),
        ("bool", 1),
        ("bool", "false"),
        ("string", 7),
        ("bytes", "not hexadecimal"),
        ("bytes4", b"123"),
        ("bytes4", b"12345"),
        ("address", "0x12"),
    ],
)
def test_a_value_that_would_be_signed_as_another_one_is_refused(kind: str, value: object) -> None:
    data = {
        "types": {"Order": [{"name": "value", "type": kind}]},
        "primaryType": "Order",
        "domain": {"name": "Shop"},
        "message": {"value": value},
    }

    with pytest.raises(ValueError, match=r"."):
        digest_of(data)


def test_a_domain_of_another_type_than_its_own_is_refused() -> None:
    types = MAIL["types"] | {"EIP712Domain": [{"name": "name", "type": "string"}]}

    with pytest.raises(ValueError, match="domain"):
        digest_of(MAIL | {"types": types})


def test_a_type_that_the_message_does_not_use_changes_nothing() -> None:
    types = MAIL["types"] | {"Unused": [{"name": "name", "type": "string"}]}

    assert digest_of(MAIL | {"types": types}) == digest_of(MAIL)


def test_the_first_digest_leaves_the_recursion_limit_as_it_is() -> None:
    code = """if True:
        import sys
        from ltzd.providers.identity.typed_data import digest_of
        limit, domain = sys.getrecursionlimit(), {"name": "Shop"}
        data = {"types": {"Empty": []}, "primaryType": "Empty", "domain": domain, "message": {}}
        digest_of(data)
        assert "eth_account" in sys.modules
        assert sys.getrecursionlimit() == limit, sys.getrecursionlimit()
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_fraction_has_no_place_on_the_wire() -> None:
    with pytest.raises(ValueError, match="float"):
        to_wire({**MAIL, "message": {"contents": 1.5}})


def test_only_a_signature_that_contracts_accept_has_a_signer() -> None:
    account, digest = Account.from_key(b"\x01" * 32), digest_of(MAIL)
    signature = bytes(account.sign_message(encode_typed_data(full_message=MAIL)).signature)
    r, s, v = signature[:32], signature[32:64], signature[64]
    assert signer_of(digest, signature) == address_of(account.address)
    assert normalised(r + s + bytes((v - 27,))) == signature

    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    high = (order - int.from_bytes(s, "big")).to_bytes(32, "big")
    refused = [
        b"",
        signature[:64],
        signature + b"\0",
        r + s + b"\x1d",
        r + high + bytes((55 - v,)),
        bytes(64) + b"\x1b",
    ]
    for wrong in refused:
        with pytest.raises(ValueError, match=r"signature"):
            signer_of(digest, wrong)

"""Digests equal eth-account's, signers are recovered as OpenZeppelin's ECDSA would."""

from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from eth_hash.auto import keccak
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from ltzd.chain import typed_data
from ltzd.chain.typed_data import (
    Buy,
    Claim,
    Permit,
    Refund,
    Release,
    TransferWithAuthorization,
    TypedMessage,
    digest,
    domain_separator,
    recover,
    signature_of,
)
from ltzd.values import Address, Hash32, checksummed

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

TYPES: dict[type[Any], list[tuple[str, str]]] = {
    Permit: [
        ("owner", "address"),
        ("spender", "address"),
        ("value", "uint256"),
        ("nonce", "uint256"),
        ("deadline", "uint256"),
    ],
    TransferWithAuthorization: [
        ("from", "address"),
        ("to", "address"),
        ("value", "uint256"),
        ("validAfter", "uint256"),
        ("validBefore", "uint256"),
        ("nonce", "bytes32"),
    ],
    Claim: [
        ("user", "address"),
        ("collectionId", "uint256"),
        ("maxPrice", "uint256"),
        ("expectedClaims", "uint256"),
        ("ref", "bytes32"),
        ("deadline", "uint256"),
    ],
    Buy: [
        ("buyer", "address"),
        ("itemId", "uint256"),
        ("quantity", "uint256"),
        ("maxTotal", "uint256"),
        ("ref", "bytes32"),
        ("deadline", "uint256"),
    ],
    Release: [("dealId", "bytes32"), ("deadline", "uint256")],
    Refund: [("dealId", "bytes32"), ("deadline", "uint256")],
}
OF_TYPE = {
    "address": st.binary(min_size=20, max_size=20).map(Address),
    "uint256": st.integers(0, 2**256 - 1),
    "bytes32": st.binary(min_size=32, max_size=32),
}
messages = st.one_of(
    *(
        st.builds(kind, *(OF_TYPE[field_type] for _, field_type in fields))
        for kind, fields in TYPES.items()
    )
)
addresses = OF_TYPE["address"]
keys = st.integers(1, ORDER - 1).map(lambda number: number.to_bytes(32, "big"))

A_DIGEST = Hash32(keccak(b"a message"))
A_KEY = b"\x11" * 32


def by_eth_account(message: TypedMessage, name: str, chain_id: int, contract: bytes) -> Any:
    kind = type(message)
    values = [getattr(message, field.name) for field in fields(message)]
    return encode_typed_data(
        full_message={
            "types": {
                "EIP712Domain": [
                    {"name": "name", "type": "string"},
                    {"name": "version", "type": "string"},
                    {"name": "chainId", "type": "uint256"},
                    {"name": "verifyingContract", "type": "address"},
                ],
                kind.__name__: [
                    {"name": each, "type": field_type} for each, field_type in TYPES[kind]
                ],
            },
            "primaryType": kind.__name__,
            "domain": {
                "name": name,
                "version": "1",
                "chainId": chain_id,
                "verifyingContract": checksummed(Address(contract)),
            },
            "message": {
                each: checksummed(value) if field_type == "address" else value
                for (each, field_type), value in zip(TYPES[kind], values, strict=True)
            },
        }
    )


@given(
    messages,
    st.sampled_from(sorted(typed_data.DOMAIN_NAMES.values())),
    st.integers(1, 2**64),
    addresses,
    keys,
)
def test_a_digest_and_its_signer_are_those_of_eth_account(
    message: TypedMessage, name: str, chain_id: int, contract: Address, key: bytes
) -> None:
    expected = by_eth_account(message, name, chain_id, contract)

    ours = digest(message, domain_separator(name, chain_id, contract))

    assert ours == keccak(b"\x19\x01" + expected.header + expected.body)
    signed = Account.sign_message(expected, key)
    assert checksummed(recover(ours, bytes(signed.signature))) == Account.from_key(key).address


def test_the_permit_of_the_integration_notes() -> None:
    owner = Address(bytes.fromhex("19e7e376e7c213b7e7e7e46cc70a5dd086daff2a"))
    domain = domain_separator("Loyalty Token", 31337, Address(b"\x22" * 20))

    hash_ = digest(Permit(owner, Address(b"\x33" * 20), 1000, 0, 2_000_000_000), domain)

    assert hash_.hex() == "1377b2dd3efd12c6d11dc58befa3aee82c74f3b3b14135f4dad9fd7bb8c5d3d3"
    # r as the wallet gave it: 63 digits, its leading zero left out
    r = 0xD024A95AAA5ED1ACE1A691C3893255934D30770000B7A52768CEC060589E735
    s = 0x5F2D2E33582242B00A094C706AEE5EE211F691A1699F4CD4C4AA62C99741BECE
    assert recover(hash_, signature_of(28, r, s)) == owner
    assert recover(hash_, signature_of(1, r, s)) == owner
    shortened = signature_of(28, r.to_bytes(32, "big").lstrip(b"\0"), s.to_bytes(32, "big"))
    assert recover(hash_, shortened) == owner


def a_signature() -> bytes:
    return bytes(Account.unsafe_sign_hash(A_DIGEST, A_KEY).signature)


def test_the_malleable_form_of_a_signature_is_refused() -> None:
    good = a_signature()
    high = ORDER - int.from_bytes(good[32:64], "big")
    flipped = good[:32] + high.to_bytes(32, "big") + bytes((55 - good[64],))

    with pytest.raises(ValueError, match="half the curve's order"):
        recover(A_DIGEST, flipped)


@pytest.mark.parametrize("v", [0, 1, 2, 26, 29, 255])
def test_any_v_but_27_and_28_is_refused(v: int) -> None:
    with pytest.raises(ValueError, match="27 or 28"):
        recover(A_DIGEST, a_signature()[:64] + bytes((v,)))


@pytest.mark.parametrize("length", [0, 64, 66, 130])
def test_a_signature_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="65 bytes"):
        recover(A_DIGEST, bytes(length))


@pytest.mark.parametrize(
    "signature",
    [
        bytes(64) + b"\x1b",
        bytes(32) + a_signature()[32:],
        a_signature()[:32] + bytes(32) + b"\x1c",
        ORDER.to_bytes(32, "big") + a_signature()[32:],
        b"\xff" * 32 + a_signature()[32:],
    ],
)
def test_a_signature_without_a_signer_is_refused(signature: bytes) -> None:
    with pytest.raises(ValueError, match="no key"):
        recover(A_DIGEST, signature)


@given(st.binary(min_size=65, max_size=65))
def test_random_signatures_are_refused_or_recover_another_address(signature: bytes) -> None:
    try:
        signer = recover(A_DIGEST, signature)
    except ValueError:
        return
    assert len(signer) == 20
    assert checksummed(signer) != Account.from_key(A_KEY).address


@pytest.mark.parametrize(
    ("v", "r", "s"), [(-1, 1, 1), (256, 1, 1), (27, 2**256, 1), (27, 1, -1), (27, b"\1" * 33, 1)]
)
def test_values_that_do_not_fit_into_65_bytes_are_refused(v: int, r: int | bytes, s: int) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each case has its own text
        signature_of(v, r, s)


@pytest.mark.parametrize(
    "message",
    [
        Release(b"\x01" * 31, 1),
        Release(b"\x01" * 32, -1),
        Release(b"\x01" * 32, 2**256),
        Permit(Address(b"\x01" * 19), Address(b"\x01" * 20), 1, 1, 1),
    ],
)
def test_a_field_that_its_type_cannot_hold_is_refused(message: TypedMessage) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each case has its own text
        digest(message, bytes(32))

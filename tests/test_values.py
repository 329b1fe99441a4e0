"""Addresses as text, judged by eth-utils."""

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak as reference_keccak
from hypothesis import given
from hypothesis import strategies as st

from ltzd.values import Address, checksummed, has_right_case, keccak


@given(st.binary(max_size=300))
def test_keccak_is_the_libraries_keccak(data: bytes) -> None:
    assert keccak(data) == reference_keccak(data)


@given(st.binary(min_size=20, max_size=20))
def test_a_checksum_is_the_one_of_eip_55(raw: bytes) -> None:
    text = to_checksum_address(raw)
    assert checksummed(Address(raw)) == text
    digits = text[2:]
    assert all(map(has_right_case, (text, "0x" + digits.lower(), "0x" + digits.upper())))
    is_one_case = digits in {digits.lower(), digits.upper()}
    assert has_right_case("0x" + digits.swapcase()) == is_one_case


def test_an_address_of_digits_alone_has_no_capitals() -> None:
    assert checksummed(Address(bytes(20))) == "0x" + "0" * 40
    assert checksummed(Address(b"\x12" * 20)) == "0x" + "12" * 20

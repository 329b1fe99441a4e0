"""RLP and signatures equal eth-account's, byte for byte."""

import pytest
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.chain.signing import Signer, UnsignedTransaction
from ltzd.values import Address, checksummed, hex_of

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

secrets = st.integers(1, ORDER - 1).map(lambda number: number.to_bytes(32, "big"))
lengths = st.sampled_from([0, 1, 2, 54, 55, 56, 57, 255, 256, 257, 65_535, 65_536, 100_000])
data = st.one_of(
    st.binary(max_size=80),
    # One byte below and from 0x80 on, and every length at which RLP changes its form.
    st.sampled_from([b"\x00", b"\x7f", b"\x80", b"\xff"]),
    lengths.map(lambda length: b"\xab" * length),
)
addresses = st.one_of(
    st.binary(min_size=20, max_size=20), st.just(bytes(20)), st.just(b"\xff" * 20)
).map(Address)
quantities = st.one_of(
    st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0x100, 2**64 - 2]), st.integers(0, 2**64 - 2)
)
transactions = st.builds(
    UnsignedTransaction,
    chain_id=st.integers(1, 2**53),
    nonce=quantities,
    max_priority_fee_per_gas=quantities,
    max_fee_per_gas=quantities,
    gas_limit=quantities,
    to=addresses | st.just(Address(b"")),
    value=quantities | st.integers(0, 2**256 - 1),
    data=data,
)


@given(secrets, transactions)
def test_signed_bytes_are_those_of_eth_account(
    secret: bytes, transaction: UnsignedTransaction
) -> None:
    signed = Signer(secret).sign(transaction)

    expected = Account.from_key(secret).sign_transaction(
        {
            "type": 2,
            "chainId": transaction.chain_id,
            "nonce": transaction.nonce,
            "maxPriorityFeePerGas": transaction.max_priority_fee_per_gas,
            "maxFeePerGas": transaction.max_fee_per_gas,
            "gas": transaction.gas_limit,
            "to": bytes(transaction.to),
            "value": transaction.value,
            "data": transaction.data,
            "accessList": (),
        }
    )
    assert signed.raw == bytes(expected.raw_transaction)
    assert signed.hash == bytes(expected.hash)


@given(secrets, transactions)
def test_bytes_without_base_fee_are_those_of_eth_account(
    secret: bytes, transaction: UnsignedTransaction
) -> None:
    """EIP-155: the signature names the chain, so that it is worth nothing on another one."""
    signed = Signer(secret).sign(replace(transaction, is_legacy=True))

    expected = Account.from_key(secret).sign_transaction(
        {
            "chainId": transaction.chain_id,
            "nonce": transaction.nonce,
            "gasPrice": transaction.max_fee_per_gas,
            "gas": transaction.gas_limit,
            "to": bytes(transaction.to),
            "value": transaction.value,
            "data": transaction.data,
        }
    )
    assert signed.raw == bytes(expected.raw_transaction)
    assert signed.hash == bytes(expected.hash)
    assert Account.recover_transaction(signed.raw) == checksummed(Signer(secret).address)


@given(secrets)
def test_an_address_is_that_of_eth_account(secret: bytes) -> None:
    assert checksummed(Signer(secret).address) == Account.from_key(secret).address


@pytest.mark.parametrize("secret", [bytes(32), ORDER.to_bytes(32, "big"), b"\xff" * 32])
def test_a_number_that_is_no_private_key_makes_no_signer(secret: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is libsecp256k1's
        Signer(secret)


def test_a_signer_shows_its_address_and_never_its_key() -> None:
    secret = b"\x5e" * 32
    signer = Signer(secret)

    assert repr(signer) == f"Signer({hex_of(signer.address)})"
    assert secret.hex() not in repr(vars(signer))

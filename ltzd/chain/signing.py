"""Encodes transactions by hand and signs them with libsecp256k1, ten times as fast as eth-account.

The transactions are of EIP-1559, or of type 0 with EIP-155 for chains without base fees.
eth-account is the oracle in the tests. `TransactionEncoding` knows the bytes that a signature is
made of and the bytes that it completes, whoever signs; `Signer` has its key in this process. Keys
stay inside `Signer`, whose repr shows only the address. Fees are in wei per gas.
"""

from collections.abc import Sequence
from typing import Protocol, Self

import coincurve
import msgspec

from ltzd.chain.rlp import encode_integer, encode_list, encode_text
from ltzd.rules.operator.fees import Fees
from ltzd.values import Address, Hash32, hex_of, keccak

CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
"""The number of points of secp256k1: r and s are below it."""


class UnsignedTransaction(msgspec.Struct, frozen=True):
    """A transaction without access list. `to` is empty for the creation of a contract.

    With `is_legacy` it is one of type 0, whose gas price is `max_fee_per_gas`.
    """

    chain_id: int
    nonce: int
    max_priority_fee_per_gas: int
    max_fee_per_gas: int
    gas_limit: int
    to: Address
    value: int
    data: bytes
    is_legacy: bool = False

    @classmethod
    def with_fees(
        cls,
        fees: Fees,
        *,
        chain_id: int,
        nonce: int,
        gas_limit: int,
        to: Address,
        data: bytes,
        value: int = 0,
    ) -> Self:
        return cls(
            chain_id,
            nonce,
            fees.max_priority_fee_per_gas,
            fees.max_fee_per_gas,
            gas_limit,
            to,
            value,
            data,
            fees.is_legacy,
        )


class SignedTransaction(msgspec.Struct, frozen=True):
    """The encoded transaction, ready for `eth_sendRawTransaction`, and its hash."""

    raw: bytes
    hash: Hash32


class WalletSigner(Protocol):
    """Signs for one wallet, with a key that may be elsewhere."""

    @property
    def address(self) -> Address: ...

    async def sign_all(
        self, transactions: Sequence[UnsignedTransaction]
    ) -> list[SignedTransaction]:
        """Sign each transaction, in order, all or none. Raises SignerUnavailable."""
        ...


class TransactionEncoding:
    """The bytes of one transaction. A signature is made of the Keccak hash of `payload`."""

    __slots__ = ("_chain_id", "_fields", "_is_legacy", "payload")

    def __init__(self, transaction: UnsignedTransaction) -> None:
        self._chain_id = chain_id = transaction.chain_id
        self._is_legacy = transaction.is_legacy
        if transaction.is_legacy:
            self._fields = _legacy_fields(transaction)
            end = encode_integer(chain_id) + encode_integer(0) + encode_integer(0)
            self.payload = encode_list(self._fields + end)
        else:
            self._fields = _fields(transaction)
            self.payload = b"\x02" + encode_list(self._fields)

    def signed(self, y_parity: int, r: int, s: int) -> SignedTransaction:
        """EIP-1559, EIP-2718: 0x02 ‖ rlp([…, y parity, r, s]).

        EIP-155: rlp([…, chain id x 2 + 35 + y parity, r, s]).
        """
        end = encode_integer(r) + encode_integer(s)
        if self._is_legacy:
            v = 2 * self._chain_id + 35 + y_parity
            raw = encode_list(self._fields + encode_integer(v) + end)
        else:
            raw = b"\x02" + encode_list(self._fields + encode_integer(y_parity) + end)
        return SignedTransaction(raw, Hash32(keccak(raw)))


class Signer:
    """One wallet's key, in this process."""

    def __init__(self, secret: bytes) -> None:
        self._key = coincurve.PrivateKey(secret)
        self.address = address_of_public_key(self._key.public_key.format(compressed=False)[1:])

    def __repr__(self) -> str:
        return f"Signer({hex_of(self.address)})"

    def sign(self, transaction: UnsignedTransaction) -> SignedTransaction:
        """Deterministic (RFC 6979), with a low s."""
        encoding = TransactionEncoding(transaction)
        signature = self._key.sign_recoverable(keccak(encoding.payload), hasher=None)
        r = int.from_bytes(signature[:32], "big")
        s = int.from_bytes(signature[32:64], "big")
        return encoding.signed(signature[64], r, s)

    async def sign_all(
        self, transactions: Sequence[UnsignedTransaction]
    ) -> list[SignedTransaction]:
        return list(map(self.sign, transactions))


def address_of_public_key(public_key: bytes) -> Address:
    """`public_key` has 64 bytes: the point's two coordinates."""
    return Address(keccak(public_key)[-20:])


def signer_of(digest: bytes, signature: bytes) -> Address | None:
    """The address whose key made a signature (r, s and the y parity, 65 bytes), or None."""
    try:
        key = coincurve.PublicKey.from_signature_and_message(signature, digest, hasher=None)
    except ValueError:
        return None
    return address_of_public_key(key.format(compressed=False)[1:])


def _fields(transaction: UnsignedTransaction) -> bytes:
    return b"".join(
        (
            encode_integer(transaction.chain_id),
            encode_integer(transaction.nonce),
            encode_integer(transaction.max_priority_fee_per_gas),
            encode_integer(transaction.max_fee_per_gas),
            encode_integer(transaction.gas_limit),
            encode_text(transaction.to),
            encode_integer(transaction.value),
            encode_text(transaction.data),
            b"\xc0",
        )
    )


def _legacy_fields(transaction: UnsignedTransaction) -> bytes:
    return b"".join(
        (
            encode_integer(transaction.nonce),
            encode_integer(transaction.max_fee_per_gas),
            encode_integer(transaction.gas_limit),
            encode_text(transaction.to),
            encode_integer(transaction.value),
            encode_text(transaction.data),
        )
    )

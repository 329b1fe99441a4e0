"""The usual relay loop with web3.py and eth-account, as tutorials show it, in a process of its own.

Many requests are served at once; one lock stands around what needs the wallet's nonce, from asking
the node for it to the node's answer to the transaction. A call is estimated first, and relayed once
its receipt is there. `measure` starts the process, gives it its Work and reads what was Relayed.
"""

import asyncio
import sys
from array import array
from collections.abc import Iterator
from time import perf_counter, process_time
from typing import Any

import msgspec
from eth_account import Account
from eth_account.signers.local import LocalAccount
from web3 import AsyncHTTPProvider, AsyncWeb3

from benchmarks.harness import processes
from benchmarks.harness.load import percentile_ms
from benchmarks.limits.inclusion import FUNDS
from ltzd.chain.contracts import artifacts

RECEIPT_POLL_SECONDS = 0.1
"""web3's own."""


class RelayerLoad(msgspec.Struct, frozen=True):
    """`calls` are calls of LTZ, each valid once."""

    rpc_url: str
    to: str
    calls: list[str]
    in_flight: int
    warm_up_seconds: float
    seconds: float


class Relayed(msgspec.Struct, frozen=True):
    """Arrival times of receipts, and the latencies of their relays."""

    per_second: float
    p50_ms: float
    p99_ms: float
    client_share: float

    def as_json(self) -> dict[str, Any]:
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content


async def measure(work: RelayerLoad) -> Relayed:
    answer = await processes.answer_of("benchmarks.limits.usual_relayer", msgspec.json.encode(work))
    return msgspec.json.decode(answer, type=Relayed)


class _Relayer:
    def __init__(self, web3: AsyncWeb3[AsyncHTTPProvider], account: LocalAccount) -> None:
        self._web3 = web3
        self._account = account
        self._lock = asyncio.Lock()

    async def relay(self, call: Any) -> None:
        sender = self._account.address
        gas = await call.estimate_gas({"from": sender})
        async with self._lock:
            nonce = await self._web3.eth.get_transaction_count(sender, "pending")
            transaction = await call.build_transaction(
                {"from": sender, "nonce": nonce, "gas": gas * 5 // 4}
            )
            signed = self._account.sign_transaction(transaction)
            transaction_hash = await self._web3.eth.send_raw_transaction(signed.raw_transaction)
        receipt = await self._web3.eth.wait_for_transaction_receipt(
            transaction_hash, poll_latency=RECEIPT_POLL_SECONDS
        )
        if receipt["status"] != 1:
            raise SystemExit("a transaction reverted")


async def _run(work: RelayerLoad) -> Relayed:
    web3 = AsyncWeb3(AsyncHTTPProvider(work.rpc_url))
    account: LocalAccount = Account.create()
    await web3.provider.make_request("anvil_setBalance", [account.address, hex(FUNDS)])
    contract = web3.eth.contract(
        web3.to_checksum_address(work.to), abi=artifacts.artifact("LTZ")["abi"]
    )
    calls = iter([_call(contract, data) for data in work.calls])
    relayer, latencies = _Relayer(web3, account), array("d")
    start, used = perf_counter(), process_time()
    begin = start + work.warm_up_seconds
    end = begin + work.seconds
    async with asyncio.TaskGroup() as group:
        for _ in range(work.in_flight):
            group.create_task(_serve(relayer, calls, (begin, end), latencies))
    share = (process_time() - used) / (perf_counter() - start)
    await web3.provider.disconnect()
    ordered = sorted(latencies)
    return Relayed(
        per_second=len(ordered) / work.seconds,
        p50_ms=percentile_ms(ordered, 0.50),
        p99_ms=percentile_ms(ordered, 0.99),
        client_share=share,
    )


def _call(contract: Any, data: str) -> Any:
    function, arguments = contract.decode_function_input(data)
    return function(**arguments)


async def _serve(
    relayer: _Relayer,
    calls: Iterator[Any],
    counted: tuple[float, float],
    latencies: "array[float]",
) -> None:
    begin, end = counted
    while (asked_at := perf_counter()) < end:
        call = next(calls, None)
        if call is None:
            raise SystemExit("all calls are relayed before the time is up: give more of them")
        await relayer.relay(call)
        now = perf_counter()
        if begin <= now < end:
            latencies.append(now - asked_at)


if __name__ == "__main__":
    _work = msgspec.json.decode(sys.stdin.buffer.read(), type=RelayerLoad)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_run(_work))))

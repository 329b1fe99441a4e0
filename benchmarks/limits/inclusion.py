"""anvil's own limit: signed transactions that it accepts and mines a second, measured separately.

One client sends JSON-RPC batches, each after the answer to the last. `measure` starts a process,
sends it its InclusionLoad and reads an Included; both as JSON.
"""

import asyncio
import secrets
import sys
from collections.abc import Sequence
from time import process_time, time
from typing import Any

import msgspec
import uvloop

from benchmarks.harness import processes
from benchmarks.harness.blocks import Blocks, watched
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc
from ltzd.chain.signing import Signer, UnsignedTransaction
from ltzd.values import address_of, bytes_of, hex_of

BATCH = 100
FUNDS = 10**24
GAS_SHARE = (5, 4)
"""The ratio of a relay's gas limit to its estimate."""
_MAX_FEE = 10**12
_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 120.0


class InclusionLoad(msgspec.Struct, frozen=True):
    """`calls` are distinct calls of one kind, each valid once."""

    rpc_url: str
    to: str
    calls: list[str]
    warm_up_seconds: float
    seconds: float


class Included(msgspec.Struct, frozen=True):
    """`taken_per_second` counts accepted transactions; `block_seconds` are between blocks."""

    per_second: float
    taken_per_second: float
    block_seconds: float
    client_share: float

    def as_json(self) -> dict[str, Any]:
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content


async def measure(work: InclusionLoad) -> Included:
    answer = await processes.answer_of("benchmarks.limits.inclusion", msgspec.json.encode(work))
    return msgspec.json.decode(answer, type=Included)


async def funded(rpc: Rpc) -> Signer:
    """A new wallet, funded by anvil."""
    signer = Signer(secrets.token_bytes(32))
    await rpc.call("anvil_setBalance", hex_of(signer.address), hex(FUNDS))
    return signer


async def until_mined(rpc: Rpc, wallet: str) -> None:
    """Waits until no transaction of the wallet is pending."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while (  # noqa: ASYNC110 - polls another process
            await _nonce(rpc, wallet, "latest") < await _nonce(rpc, wallet, "pending")
        ):
            await asyncio.sleep(_POLL_SECONDS)


async def _nonce(rpc: Rpc, wallet: str, tag: str) -> int:
    return int(await rpc.call("eth_getTransactionCount", wallet, tag), 16)


async def _run(work: InclusionLoad) -> Included:
    async with Rpc(work.rpc_url) as rpc:
        signer = await funded(rpc)
        raws = await _signed(rpc, signer, work)
        async with watched(rpc) as blocks:
            began = time()
            used = process_time()
            sent = await _send(rpc, raws, began + work.warm_up_seconds + work.seconds)
            ended = time()
            share = (process_time() - used) / (ended - began)
        included = await _included(rpc, blocks, began + work.warm_up_seconds, ended)
        await until_mined(rpc, hex_of(signer.address))
    return msgspec.structs.replace(
        included, taken_per_second=sent / (ended - began), client_share=share
    )


async def _signed(rpc: Rpc, signer: Signer, work: InclusionLoad) -> list[str]:
    to = address_of(work.to)
    calls = [bytes_of(call) for call in work.calls]
    needed = await Node(rpc).estimate_gas(to, calls[0], signer.address)
    if not isinstance(needed, int):
        raise SystemExit(f"the calls revert: {needed.text}")
    chain_id = int(await rpc.call("eth_chainId"), 16)
    return [
        hex_of(
            signer.sign(
                UnsignedTransaction(
                    chain_id=chain_id,
                    nonce=nonce,
                    max_priority_fee_per_gas=10**9,
                    max_fee_per_gas=_MAX_FEE,
                    gas_limit=needed * GAS_SHARE[0] // GAS_SHARE[1],
                    to=to,
                    value=0,
                    data=call,
                )
            ).raw
        )
        for nonce, call in enumerate(calls)
    ]


async def _send(rpc: Rpc, raws: Sequence[str], until: float) -> int:
    """Returns the number of transactions accepted by then."""
    for at in range(0, len(raws), BATCH):
        if time() >= until:
            return at
        answers = await rpc.batch(
            [("eth_sendRawTransaction", (raw,)) for raw in raws[at : at + BATCH]]
        )
        refused = next((answer for answer in answers if isinstance(answer, Exception)), None)
        if refused is not None:
            raise SystemExit(f"the node refuses a transaction: {refused}")
    raise SystemExit("all signed transactions are sent before the time is up: give more of them")


async def _included(rpc: Rpc, blocks: Blocks, began: float, ended: float) -> Included:
    first, last = blocks.between(began, ended)
    counts = await rpc.batch(
        [
            ("eth_getBlockTransactionCountByNumber", (hex(number),))
            for number in range(first.number + 1, last.number + 1)
        ]
    )
    seconds = last.at - first.at
    return Included(
        per_second=sum(int(count, 16) for count in counts) / seconds,
        taken_per_second=0.0,
        block_seconds=blocks.interval(began, ended),
        client_share=0.0,
    )


if __name__ == "__main__":
    _work = msgspec.json.decode(sys.stdin.buffer.read(), type=InclusionLoad)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_run(_work))))

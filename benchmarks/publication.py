"""The time from a relay's request until the node knows its transaction, one in flight.

The node announces new transactions over a WebSocket; the answer is awaited before the
next request, which follows at a random moment between two blocks.
"""

import asyncio
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.harness.instance import Instance
from benchmarks.harness.load import loopback_address, percentile_ms
from benchmarks.relay_calls import CONFIRMED

_MOST_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Published:
    p50_ms: float
    p90_ms: float
    p99_ms: float
    relays: int

    def as_json(self) -> dict[str, Any]:
        return {
            "p50_ms": self.p50_ms,
            "p90_ms": self.p90_ms,
            "p99_ms": self.p99_ms,
            "relays": self.relays,
        }


async def measure(ltzd: Instance, requests: Sequence[str]) -> Published:
    latencies = array("d")
    url = ltzd.dev_json["rpcUrl"].replace("http", "ws", 1)
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url) as news,
    ):
        await _subscribe(news)
        streams = await asyncio.open_connection(
            "127.0.0.1", ltzd.port, local_addr=(loopback_address(0), 0)
        )
        for request in requests:
            latencies.append(await _relayed(streams, news, request.encode()))
            await asyncio.sleep(random.uniform(0, _MOST_PAUSE_SECONDS))
        streams[1].close()
    ordered = sorted(latencies)
    p50, p90, p99 = (percentile_ms(ordered, part) for part in (0.5, 0.9, 0.99))
    return Published(p50, p90, p99, len(ordered))


async def _subscribe(news: "aiohttp.ClientWebSocketResponse[bool]") -> None:
    await news.send_json(
        {"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": ["newPendingTransactions"]}
    )
    if "result" not in await news.receive_json():
        raise SystemExit("the node does not tell of new transactions")


async def _relayed(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    news: "aiohttp.ClientWebSocketResponse[bool]",
    request: bytes,
) -> float:
    """The seconds until the node announced the transaction of the answer."""
    reader, writer = streams
    sent_at = perf_counter()
    writer.write(request)
    async with asyncio.timeout(_PATIENCE_SECONDS):
        notification = await news.receive_json()
        seconds = perf_counter() - sent_at
        answer = await _answer(reader)
    if CONFIRMED not in answer or notification["params"]["result"] not in answer:
        raise SystemExit(f"the node told of {notification}, the answer is {answer}")
    return seconds


async def _answer(reader: asyncio.StreamReader) -> str:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(line for line in head.split("\r\n") if line.startswith("content-length:"))
    return (await reader.readexactly(int(length.split(":")[1]))).decode()

"""Nodes of one chain as real HTTP servers, each of which can die, hang, lag, err or lie."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web
from eth_hash.auto import keccak

from ltzd.chain.pool.chain_check import ExpectedChain
from ltzd.chain.pool.policy import NodePoolPolicy
from ltzd.chain.pool.pool import NodePool
from ltzd.chain.pool.watch import NodeWatch
from ltzd.rules.nodes.breaker import BreakerPolicy
from ltzd.values import Address, Hash32

LTZ = Address(b"\x17" * 20)
CHAIN_ID = 31337
CODE = "0x6001"

QUICK = NodePoolPolicy(
    timeout=3.0,
    hedge_after=0.2,
    pinned_timeout=0.5,
    watch_pause=0.05,
    shortest_pause=0.02,
    witness_seconds=0.5,
    compare_pause=0.1,
    verify_pause=0.1,
    distrust_first=60.0,
    breaker=BreakerPolicy(first_pause=0.05, longest_pause=0.2),
)
"""A pool that notices within tenths of a second."""


def block_hash(height: int, branch: str = "") -> str:
    return "0x" + keccak(f"{branch}{height}".encode()).hex()


@dataclass
class FleetNode:
    """One node; its attributes may be changed at any time. `branch` names its blocks' history."""

    name: str
    height: int = 100
    branch: str = ""
    branch_from: int = 0
    chain_id: int = CHAIN_ID
    code: str = CODE
    mode: Literal["ok", "hung", "http_500", "limited"] = "ok"
    block_seconds: float = 1.0
    delay_seconds: float = 0.0
    invents_head: bool = False
    padding: int = 0
    """Empty objects in a field of each block that no node has."""
    hung_methods: frozenset[str] = frozenset()
    """Methods that the node never answers while it answers all others."""
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def hash_at(self, height: int) -> str:
        return block_hash(height, self.branch if height >= self.branch_from else "")

    def _block(self, height: int) -> dict[str, Any] | None:
        if height > self.height or (self.invents_head and 100 < height < self.height):
            return None
        return {
            "number": hex(height),
            "hash": self.hash_at(height),
            "parentHash": self.hash_at(height - 1),
            "timestamp": hex(1_700_000_000 + int(height * self.block_seconds)),
            "logsBloom": "0x" + "00" * 256,
            "baseFeePerGas": "0x1",
            "gasLimit": "0x1c9c380",
            **({"x": [{}] * self.padding} if self.padding else {}),
        }

    def result_of(self, method: str, params: list[Any]) -> object:
        match method:
            case "eth_chainId":
                return hex(self.chain_id)
            case "eth_getCode":
                return self.code
            case "eth_getBlockByNumber":
                height = self.height if params[0] == "latest" else int(params[0], 16)
                return self._block(height)
            case "eth_blockNumber":
                return hex(self.height)
            case "who":
                return self.name
        raise AssertionError(f"the fleet's nodes do not know {method}")

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        calls = body if isinstance(body, list) else [body]
        self.requests += [call["method"] for call in calls]
        if self.mode == "hung" or self.hung_methods & {call["method"] for call in calls}:
            await asyncio.Event().wait()
        if self.mode == "http_500":
            return web.Response(status=500, text="<html>no</html>")
        if self.mode == "limited":
            return web.Response(status=429, headers={"Retry-After": "60"})
        await asyncio.sleep(self.delay_seconds)
        answers = [self._answer(call) for call in calls]
        return web.json_response(answers if isinstance(body, list) else answers[0])

    def _answer(self, call: Mapping[str, Any]) -> dict[str, object]:
        result = self.result_of(call["method"], call["params"])
        return {"jsonrpc": "2.0", "id": call["id"], "result": result}


@asynccontextmanager
async def serving(node: FleetNode) -> AsyncIterator[None]:
    """Serves the node on a port, and after the block refuses connections there."""
    application = web.Application()
    application.router.add_post("/", node.handle)
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=0, handler_cancellation=True
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    node.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield
    finally:
        await runner.cleanup()


@dataclass
class Fleet:
    """`kill(node)` makes a node refuse connections for good."""

    nodes: list[FleetNode]
    pool: NodePool
    watch: NodeWatch
    servers: dict[str, AsyncExitStack]

    async def kill(self, node: FleetNode) -> None:
        await self.servers[node.name].aclose()


@asynccontextmanager
async def a_fleet(
    *nodes: FleetNode, policy: NodePoolPolicy = QUICK, is_watched: bool = False
) -> AsyncIterator[Fleet]:
    """A pool of nodes that follow the chain of the first one, after one look at each."""
    async with AsyncExitStack() as stack:
        servers = {}
        for node in nodes:
            servers[node.name] = await stack.enter_async_context(AsyncExitStack())
            await servers[node.name].enter_async_context(serving(node))
        pool = await stack.enter_async_context(NodePool([node.url for node in nodes], policy))
        pool.expect(ExpectedChain(CHAIN_ID, Hash32(bytes.fromhex(block_hash(0)[2:])), LTZ))
        watch = NodeWatch(pool)
        await watch.check_all()
        fleet = Fleet(list(nodes), pool, watch, servers)
        if not is_watched:
            yield fleet
            return
        task = asyncio.create_task(watch.run())
        try:
            yield fleet
        finally:
            task.cancel()

"""A node that refuses large requests is still followed: each refusal makes the next one smaller."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError, RpcPolicy
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from tests.support.chain.fake_node import CHAIN_ID, CONTRACTS, FakeNode, transfer_log
from tests.support.chain.scripted_node import HttpAnswer, a_server, error, result
from tests.support.rows.core import a_wallet, follow

ZERO = bytes(20)
NEAR = IndexerPolicy(head_blocks=1_000)
FAR = IndexerPolicy(head_blocks=2, range_blocks=2_000)


@dataclass
class Gateway:
    """Forwards requests to a fake node, unless they are larger than a limit allows."""

    node: FakeNode
    items: int = 10_000
    blocks: int = 10_000
    results: int = 10_000
    slow_blocks: int = 10_000
    """A wider range gets the answer of a gateway that has waited too long."""
    refused: Counter[str] = field(default_factory=Counter)
    """Requests that were refused for their size."""
    count: int = 0

    def __call__(self, request: Any) -> object:
        self.count += 1
        calls = request if isinstance(request, list) else [request]
        if len(calls) > self.items:
            self.refused[str([call["params"] for call in calls])] += 1
            return error({"id": None}, "batch too large", -32600)
        if any(self._blocks(call) > self.slow_blocks for call in calls):
            self.refused[str([call["params"] for call in calls])] += 1
            return HttpAnswer(b"Gateway Time-out", 504)
        answers = [self._answer(call) for call in calls]
        return answers if isinstance(request, list) else answers[0]

    def _blocks(self, call: Any) -> int:
        query = call["params"][0] if call["method"] == "eth_getLogs" else {}
        if "fromBlock" not in query:
            return 1
        return int(query["toBlock"], 16) - int(query["fromBlock"], 16) + 1

    def _answer(self, call: Any) -> object:
        method = call["method"]
        if self._blocks(call) > self.blocks:
            self.refused[str(call["params"])] += 1
            return error(call, "block range is too wide", -32600)
        try:
            answer = self.node._methods[method](*call["params"])
        except RpcError as refusal:
            return error(call, refusal.message, refusal.code)
        if method == "eth_getLogs" and len(answer) > self.results:
            self.refused[str(call["params"])] += 1
            return error(call, "query returned more than 10000 results", -32005)
        return result(call, answer)


@dataclass
class LimitedChain:
    pool: Pool
    gateway: Gateway
    follower: Follower

    async def catch_up(self) -> None:
        for _ in range(600):
            more = await self.follower.step()
            async with session(self.pool) as connection:
                cursor = await chains.cursor(connection, CHAIN_ID)
            if not more and cursor.hash == self.gateway.node.head.hash:
                return
        raise AssertionError("the follower does not arrive")

    async def transfers(self) -> list[int]:
        async with session(self.pool) as connection:
            rows = await connection.fetch("SELECT amount FROM transfers ORDER BY amount")
        return [int(row["amount"]) for row in rows]


@asynccontextmanager
async def a_limited_chain(
    pool: Pool, url: str, gateway: Gateway, policy: IndexerPolicy
) -> AsyncIterator[LimitedChain]:
    chain = await follow(pool, gateway.node)
    gateway.node.final_depth = 0
    # With the real time for an answer: ninety single calls in turn take a loaded machine seconds.
    async with a_server(gateway, policy=RpcPolicy()) as rpc:
        hub = WakeupHub("")
        follower = Follower(pool, Leases(url), Node(rpc), chain, CONTRACTS, hub, policy)
        await follower.begin_term()
        yield LimitedChain(pool, gateway, follower)


def mine(node: FakeNode, logs_of_blocks: list[int]) -> list[int]:
    """Mines blocks with so many transfers each; returns all amounts, which are unique."""
    amount = 0
    for count in logs_of_blocks:
        logs = []
        for _ in range(count):
            amount += 1
            logs.append(transfer_log(ZERO, a_wallet(1 + amount % 5), amount))
        node.mine(logs=logs)
    return list(range(1, amount + 1))


LIMITS: dict[str, dict[str, Any]] = {
    "batches": {"items": 7},
    "single calls": {"items": 1},
    "blocks": {"blocks": 5},
    "one block": {"blocks": 1},
    "results": {"results": 12},
    "no results": {"results": 0},
    "time-outs": {"slow_blocks": 6},
    "all": {"items": 6, "blocks": 9, "results": 15, "slow_blocks": 8},
}


@pytest.mark.parametrize("policy", [NEAR, FAR], ids=["near", "far"])
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
async def test_a_chain_behind_limits_is_indexed_whole(
    pool: Pool, database_url: str, limits: dict[str, Any], policy: IndexerPolicy
) -> None:
    gateway = Gateway(FakeNode(), **limits)
    async with a_limited_chain(pool, database_url, gateway, policy) as chain:
        # Quiet blocks, busy blocks, and one block with more logs than any limit of results.
        amounts = mine(gateway.node, [0] * 30 + [3] * 30 + [20] + [1] * 20 + [0] * 10)
        await chain.catch_up()
        assert await chain.transfers() == amounts


async def test_a_refused_range_is_not_asked_for_again(pool: Pool, database_url: str) -> None:
    gateway = Gateway(FakeNode(), blocks=9, results=25)
    async with a_limited_chain(pool, database_url, gateway, FAR) as chain:
        mine(gateway.node, [2] * 120)
        await chain.catch_up()
    assert max(gateway.refused.values()) == 1
    assert gateway.refused.total() < gateway.count / 4


async def test_what_a_node_taught_is_used_from_the_first_request_on(
    pool: Pool, database_url: str
) -> None:
    gateway = Gateway(FakeNode(), blocks=10)
    async with a_limited_chain(pool, database_url, gateway, FAR) as chain:
        mine(gateway.node, [1] * 100)
        await chain.catch_up()
        gateway.refused.clear()
        mine(gateway.node, [0] * 100)
        await chain.catch_up()
    assert gateway.refused.total() <= 2

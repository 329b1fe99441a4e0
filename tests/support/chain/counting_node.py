"""A node's client that counts the questions to it by kind."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ltzd.chain.node.client import Head
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcCall, RpcClient


class CountingClient:
    """Passes everything on. `questions` counts these kinds:

    - `view`: an `eth_call` of a view;
    - `simulation`: an `eth_call` or `eth_estimateGas` of a transaction;
    - `header`: a block's header;
    - `request`: a batch, or a call of its own, that holds any of them.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.questions: Counter[str] = Counter()

    @property
    def node(self) -> Node:
        return Node(self)

    async def call(self, method: str, *params: object) -> Any:
        self._count([(method, params)])
        return await self._client.call(method, *params)

    async def batched_call(self, method: str, *params: object) -> Any:
        self._count([(method, params)])
        return await self._client.batched_call(method, *params)

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        self._count(calls)
        answers: list[Any] = await self._client.batch(calls)
        return answers

    async def outcomes(self, calls: Sequence[RpcCall]) -> list[Any]:
        self._count(calls)
        answers: list[Any] = await self._client.outcomes(calls)
        return answers

    def pinned(self) -> "CountingClient":
        return self

    async def newest(self, read: Callable[[RpcClient], Awaitable[Head]]) -> tuple[RpcClient, Head]:
        return self, await read(self)

    def others(self, _min_height: int) -> Sequence[Any]:
        return ()

    def publishers(self) -> Sequence[Any]:
        return (self,)

    @property
    def is_alone(self) -> bool:
        return True

    @property
    def traits(self) -> Any:
        return self._client.traits

    @property
    def limits(self) -> Any:
        return self._client.limits

    def report_contradiction(self, kind: str) -> None:
        raise AssertionError(f"the node contradicts itself: {kind}")

    def report_silence(self) -> None:
        raise AssertionError("the node is silent")

    def report_dispute(self, kind: str) -> None:
        raise AssertionError(f"a single node contradicts another: {kind}")

    def _count(self, calls: Sequence[RpcCall]) -> None:
        kinds = [kind for call in calls if (kind := _kind(*call)) is not None]
        self.questions.update(kinds)
        self.questions["request"] += bool(kinds)


def _kind(method: str, params: Sequence[Any]) -> str | None:
    if method == "eth_estimateGas":
        return "simulation"
    if method == "eth_call":
        return "simulation" if "from" in params[0] else "view"
    return "header" if method.startswith("eth_getBlockBy") else None

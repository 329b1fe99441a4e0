"""Several nodes that must agree, because a person's key signs what their answers lead to.

A command has no time to find out which of its nodes lies, and its transaction cannot be taken back.
So every node is asked, and a contradiction ends the command before anything is signed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Self, TypeVar

from ltzd.chain.node.rpc import RpcClient
from ltzd.concurrency.clock import loop_time
from ltzd.errors import NodeUnavailable

T = TypeVar("T")

_LAG_SECONDS = 10.0
"""Nodes have this time to show the same: one may be a few blocks behind another."""
_ASK_AGAIN_SECONDS = 0.5


class AgreeingNodes:
    """`clients` are of single nodes, by the node's name; there is at least one."""

    def __init__(self, clients: Mapping[str, RpcClient]) -> None:
        self.clients = clients

    @classmethod
    def of_one(cls, rpc: RpcClient) -> Self:
        """One node, which nobody can contradict."""
        return cls({"the node": rpc})

    @property
    def first(self) -> RpcClient:
        """The node that a command of many steps works with before all nodes confirm the result."""
        return next(iter(self.clients.values()))

    async def each(self, read: Callable[[RpcClient], Awaitable[T]]) -> dict[str, T]:
        """Every node's answer, by the node's name. Raises what `read` raises."""
        answers = await asyncio.gather(*map(read, self.clients.values()))
        return dict(zip(self.clients, answers, strict=True))

    async def agreed(
        self,
        subject: str,
        read: Callable[[RpcClient], Awaitable[T]],
        consequence: str = "Nothing was sent.",
    ) -> T:
        """The answer of every node. Raises as `agreed_answer`."""
        return await agreed_answer(subject, lambda: self.each(read), consequence)


async def agreed_answer(
    subject: str, ask_each: Callable[[], Awaitable[Mapping[str, T]]], consequence: str
) -> T:
    """The answer that `ask_each` gets of every node; it returns the answers by the node's name.

    Raises NodeUnavailable if the nodes do not agree, and what `ask_each` raises. The error names
    the `subject`, and ends with `consequence`.
    """
    deadline = loop_time() + _LAG_SECONDS
    while True:
        answers = await ask_each()
        answer, *others = answers.values()
        if all(other == answer for other in others):
            return answer
        if loop_time() >= deadline:
            raise NodeUnavailable(
                f"The nodes {' and '.join(answers)} contradict each other about {subject}: "
                "find out which of them is right, remove the other one from node.urls, and "
                f"repeat the command. {consequence}"
            )
        await asyncio.sleep(_ASK_AGAIN_SECONDS)

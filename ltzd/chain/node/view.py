"""One node and one of its blocks: everything that one decision reads comes from there.

Two nodes, or two blocks, would show a balance, a nonce and a mint limit that never were true at the
same time.
"""

import asyncio
from collections.abc import Sequence
from typing import Self

import msgspec

from ltzd.chain.node.answers.typed import Account, Header
from ltzd.chain.node.node import Node
from ltzd.errors import NodeUnavailable
from ltzd.values import Address

HEAD_BELOW_BLOCK = "head_below_block"
"""A node shows a block above the head that it claims."""
_MACHINES_DIFFER_SECONDS = 0.5


class ChainView(msgspec.Struct, frozen=True):
    """`node` is pinned. Every call raises NodeUnavailable once the node has lost the block."""

    node: Node
    head: Header

    @classmethod
    async def newest(cls, node: Node) -> Self:
        """The best node's newest block; the next node's if the best one is silent.

        Raises NodeUnavailable.
        """
        return cls(*await node.newest())

    async def reaching(self, block_number: int) -> "ChainView":
        """A view of the same node whose block is at least this high.

        Raises NodeUnavailable if the node's head stays below a block that it has shown; the node is
        reported if it still shows that block.
        """
        if self.head.number >= block_number:
            return self
        view = await ChainView.newest(self.node)
        if view.head.number < block_number:
            # Behind one URL there may be several machines, of which one is a moment behind.
            await asyncio.sleep(_MACHINES_DIFFER_SECONDS)
            view = await ChainView.newest(self.node)
        if view.head.number < block_number:
            if await self.node.block(block_number) is not None:
                self.node.report_contradiction(HEAD_BELOW_BLOCK)
            raise NodeUnavailable("The node's head is below a block that it has shown")
        return view

    async def balance(self, wallet: Address) -> int:
        return await self.node.balance(wallet, self.head)

    async def nonce(self, wallet: Address) -> int:
        return await self.node.nonce(wallet, self.head)

    async def account(self, wallet: Address) -> Account:
        """Balance and nonce, in one request."""
        return await self.node.account(wallet, self.head)

    async def view(self, to: Address, data: bytes) -> bytes:
        """The result of a call. Raises RpcError with the revert data."""
        return await self.node.view(to, data, self.head)

    async def views(self, calls: Sequence[tuple[Address, bytes]]) -> list[bytes]:
        """The results of calls (to, data). Raises RpcError for the first call that reverts."""
        return await self.node.views(calls, self.head)

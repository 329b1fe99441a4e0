"""A node's view of the chain as of an older head: all answers fit this head.

A branch (hashes by height, newest at the head) holds the view on blocks that a reorg has replaced
meanwhile; only the tester chain still has such blocks. Without a branch the view moves with the
chain's reorgs.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Ask = Callable[..., Awaitable[Any]]
"""Calls the chain: from a method and its parameters to the result. Raises RpcRefusedError."""

SAFE_DEPTH = 32
FINALIZED_DEPTH = 64
_BRANCH_BLOCKS = 40
_BLOCK_AT = {
    "eth_getBalance": 1,
    "eth_getTransactionCount": 1,
    "eth_getCode": 1,
    "eth_call": 1,
    "eth_estimateGas": 1,
    "eth_createAccessList": 1,
    "eth_feeHistory": 1,
    "eth_getStorageAt": 2,
    "eth_getProof": 2,
}
"""The position of the block among a method's parameters."""


class UnknownBlockError(Exception):
    """The view has no such block."""


@dataclass(frozen=True)
class OlderView:
    ask: Ask
    height: int
    branch: Mapping[int, str] = field(default_factory=dict)
    receipts: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Receipts of the branch by transaction hash."""

    async def result(self, method: str, params: list[Any]) -> Any:
        """Raises UnknownBlockError and the errors of `ask`."""
        match method:
            case "eth_blockNumber":
                return hex(self.height)
            case "eth_getBlockByNumber":
                return await self._block(self._height_of(params[0]), *params[1:])
            case "eth_getBlockByHash":
                return await self._known(await self.ask(method, *params))
            case "eth_getBlockReceipts":
                return await self._block_receipts(params[0])
            case "eth_getTransactionReceipt":
                return await self._receipt(params[0])
            case "eth_getTransactionByHash":
                return await self._transaction(params[0])
            case "eth_getLogs":
                return await self._logs(dict(params[0]))
        if method in _BLOCK_AT:
            return await self._state(method, list(params), _BLOCK_AT[method])
        return await self.ask(method, *params)

    async def head(self) -> dict[str, Any]:
        return dict(await self._block(self.height, False))

    def _height_of(self, block: Any) -> int:
        depths = {"latest": 0, "pending": 0, "safe": SAFE_DEPTH, "finalized": FINALIZED_DEPTH}
        if block == "earliest":
            return 0
        return max(0, self.height - depths[block]) if block in depths else int(block, 16)

    async def _block(self, height: int, *full: Any) -> Any:
        if height > self.height:
            return None
        if height in self.branch:
            return await self.ask("eth_getBlockByHash", self.branch[height], *(full or (False,)))
        return await self.ask("eth_getBlockByNumber", hex(height), *(full or (False,)))

    async def _known(self, block: Any) -> Any:
        """The block if the view has it, else None."""
        if block is None or int(block["number"], 16) > self.height:
            return None
        branch_hash = self.branch.get(int(block["number"], 16), block["hash"])
        return block if branch_hash == block["hash"] else None

    async def _knows(self, block_hash: str) -> bool:
        return (
            await self._known(await self.ask("eth_getBlockByHash", block_hash, False)) is not None
        )

    async def _block_receipts(self, block: Any) -> Any:
        if isinstance(block, dict):
            block = block["blockHash"]
        if len(block) == 66:
            return (
                await self.ask("eth_getBlockReceipts", block) if await self._knows(block) else None
            )
        header = await self._block(self._height_of(block))
        return header and await self.ask("eth_getBlockReceipts", header["hash"])

    async def _receipt(self, transaction: str) -> Any:
        if transaction in self.receipts:
            return self.receipts[transaction]
        receipt = await self.ask("eth_getTransactionReceipt", transaction)
        return receipt if receipt and await self._knows(receipt["blockHash"]) else None

    async def _transaction(self, transaction: str) -> Any:
        """A transaction in a block that the view lacks is pending."""
        known = await self.ask("eth_getTransactionByHash", transaction)
        if known is None or await self._receipt(transaction):
            return known
        return {**known, "blockHash": None, "blockNumber": None, "transactionIndex": None}

    async def _logs(self, where: dict[str, Any]) -> Any:
        if "blockHash" in where:
            if not await self._knows(where["blockHash"]):
                raise UnknownBlockError
            return await self.ask("eth_getLogs", where)
        first = self._height_of(where.pop("fromBlock", "latest"))
        last = min(self._height_of(where.pop("toBlock", "latest")), self.height)
        if last < first:
            return []
        own = sorted(height for height in self.branch if first <= height <= last)
        logs = []
        if not own or own[0] > first:
            end = own[0] - 1 if own else last
            bounds = {"fromBlock": hex(first), "toBlock": hex(end)}
            logs += await self.ask("eth_getLogs", where | bounds)
        for height in own:
            logs += await self.ask("eth_getLogs", where | {"blockHash": self.branch[height]})
        return logs

    async def _state(self, method: str, params: list[Any], position: int) -> Any:
        while len(params) <= position:
            params.append("latest")
        params[position] = await self._state_block(method, params[position])
        return await self.ask(method, *params)

    async def _state_block(self, method: str, block: Any) -> Any:
        if isinstance(block, dict) and "blockHash" in block:
            if not await self._knows(block["blockHash"]):
                raise UnknownBlockError
            return {"blockHash": block["blockHash"]}
        number = block["blockNumber"] if isinstance(block, dict) else block
        height = self._height_of(number)
        if height > self.height:
            raise UnknownBlockError
        if height not in self.branch or method == "eth_feeHistory":
            return hex(height)
        canonical = await self.ask("eth_getBlockByNumber", hex(height), False)
        if canonical is not None and canonical["hash"] == self.branch[height]:
            return hex(height)
        return {"blockHash": self.branch[height]}


async def frozen_view(ask: Ask) -> OlderView:
    """The chain's view of now, which keeps its newest blocks when a reorg replaces them."""
    head = await ask("eth_getBlockByNumber", "latest", False)
    height = int(head["number"], 16)
    branch, receipts = {}, {}
    block = head
    for _ in range(min(_BRANCH_BLOCKS, height)):
        branch[int(block["number"], 16)] = block["hash"]
        if block["transactions"]:
            for receipt in await ask("eth_getBlockReceipts", block["hash"]):
                receipts[receipt["transactionHash"]] = receipt
        block = await ask("eth_getBlockByHash", block["parentHash"], False)
    return OlderView(ask, height, branch, receipts)

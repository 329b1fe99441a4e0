"""A node's receipts: of single transactions, and of all transactions of a block."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from ltzd.chain.node.answers import typed
from ltzd.chain.node.answers.typed import Receipt
from ltzd.chain.node.refusals import RefusalKind
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.typed_calls.requests import NodeRequests
from ltzd.values import Hash32, hex_of

_RECEIPTS_AT_ONCE = 200
_LARGE_BLOCK = 256
"""The number of transactions from which anvil is asked for a block's receipts in parts: anvil reads
the whole block for each receipt, and may answer nothing else until it has them all."""
_RECEIPTS_OF_ANVIL_AT_ONCE = 32


class ReceiptCalls(NodeRequests):
    async def receipts(self, hashes: Sequence[Hash32]) -> list[Receipt | None]:
        answers = await self._receipts(hashes)
        return [
            typed.receipt_of(typed.checked(answer), hash_)
            for answer, hash_ in zip(answers, hashes, strict=True)
        ]

    async def known_receipts(self, hashes: Sequence[Hash32]) -> list[Receipt]:
        """The receipts that the node has now.

        A missing one may be that of an old block, if the node has not indexed all blocks yet.
        """
        answers = await self._receipts(hashes)
        receipts = [
            typed.receipt_of(typed.checked(answer), hash_)
            for answer, hash_ in zip(answers, hashes, strict=True)
            if not typed.is_unindexed(answer)
        ]
        return [receipt for receipt in receipts if receipt is not None]

    async def _receipts(self, hashes: Sequence[Hash32]) -> list[Any]:
        return await self._rpc.batch(
            [("eth_getTransactionReceipt", (hex_of(hash_),)) for hash_ in hashes]
        )

    async def _all_receipts(self, block: Any, block_hash: Hash32) -> list[Any]:
        """The receipts of a block in their order; `block` is the node's answer with that block."""
        if _is_large(block) and await self._detect_anvil():
            parts = self._receipts_in_parts(block["transactions"], _RECEIPTS_OF_ANVIL_AT_ONCE)
        else:
            parts = self._receipts_of_block(block_hash)
        return [receipt async for part in parts for receipt in part]

    async def _receipts_of_block(self, block_hash: Hash32) -> AsyncIterator[list[Any]]:
        """The receipts in their order: all at once, or in parts if the node refuses so many.

        Raises TypeError or KeyError if the node has no such block or answers malformed data.
        """
        try:
            receipts = await self._rpc.call("eth_getBlockReceipts", hex_of(block_hash))
        except RpcError as error:
            kind = error.refusal.kind if error.refusal is not None else None
            if kind is not RefusalKind.UNSUPPORTED and not typed.is_too_large(error):
                raise typed.unavailable(error, "eth_getBlockReceipts: ") from error
        else:
            if not isinstance(receipts, list):
                raise TypeError("not a list")
            yield receipts
            return
        block = await self._ask("eth_getBlockByHash", hex_of(block_hash), False)
        async for part in self._receipts_in_parts(block["transactions"], _RECEIPTS_AT_ONCE):
            yield part

    async def _receipts_in_parts(
        self, hashes: Sequence[Any], at_once: int
    ) -> AsyncIterator[list[Any]]:
        for first in range(0, len(hashes), at_once):
            part = hashes[first : first + at_once]
            answers = await self._rpc.batch(
                [("eth_getTransactionReceipt", (hash_,)) for hash_ in part]
            )
            yield [typed.checked(answer) for answer in answers]

    async def _detect_anvil(self) -> bool:
        """Return whether the node is anvil, which it is asked once."""
        traits = self._rpc.traits
        if traits.is_anvil is None:
            try:
                version = await self._rpc.call("web3_clientVersion")
            except RpcError:
                version = None
            traits.is_anvil = isinstance(version, str) and version.lower().startswith("anvil/")
        return traits.is_anvil


def _is_large(block: Any) -> bool:
    hashes = block.get("transactions") if isinstance(block, dict) else None
    return isinstance(hashes, list) and len(hashes) >= _LARGE_BLOCK

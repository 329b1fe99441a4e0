"""How the typed calls ask a node: for its newest state, or for the state after one exact block."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from ltzd.chain.node.answers import typed
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.block_refusals import lacks_block, refuses_hash
from ltzd.chain.node.rpc import RpcCall, RpcClient, RpcError
from ltzd.errors import NodeUnavailable
from ltzd.values import hex_of

BlockRef: TypeAlias = Header | int | str
"""A block by its header, which names exactly that block (EIP-1898), by height, or by tag."""


class NodeRequests:
    """Requests to one node, or to a pool that chooses a node for each request."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def _ask(self, method: str, *params: object) -> Any:
        """A call for which an error object only means that the node cannot answer."""
        try:
            return await self._rpc.call(method, *params)
        except RpcError as error:
            raise typed.unavailable(error, f"{method}: ") from error

    async def _outcomes(self, calls: Sequence[RpcCall]) -> list[Any]:
        """As a batch; a single call goes alone."""
        if len(calls) != 1:
            return await self._rpc.batch(calls)
        try:
            return [await self._rpc.call(calls[0][0], *calls[0][1])]
        except RpcError as error:
            return [error]

    async def _read(self, at: BlockRef, method: str, *params: object) -> Any:
        """One read of state after a block; an error object means that the node cannot answer."""
        (answer,) = await self._read_all(at, [(method, params)])
        return typed.checked(answer)

    async def _read_all(self, at: BlockRef, calls: Sequence[RpcCall]) -> list[Any]:
        """The answers to calls that lack their last parameter, the block.

        A failed call's RpcError stands in place of its answer. Raises NodeUnavailable if the node
        does not hold exactly the block of a header.
        """
        if not isinstance(at, Header):
            return await self._outcomes(_after(calls, block_parameter(at)))
        if not self._rpc.traits.reads_by_hash:
            return await self._read_by_height(at, calls)
        answers = await self._outcomes(_after(calls, block_parameter(at)))
        return await self._checked_reads(at, calls, answers)

    async def _checked_reads(
        self, at: Header, calls: Sequence[RpcCall], answers: Sequence[Any]
    ) -> list[Any]:
        """Answers of reads by hash, read again by height from a node that knows no EIP-1898."""
        errors = [answer for answer in answers if isinstance(answer, RpcError)]
        if any(map(lacks_block, errors)):
            raise NodeUnavailable(f"The node does not hold block {at.number}", kind="behind")
        if not any(map(refuses_hash, errors)):
            return list(answers)
        by_height = await self._read_by_height(at, calls)
        errors = [answer for answer in by_height if isinstance(answer, RpcError)]
        # The same refusal of a plain height has another cause.
        self._rpc.traits.reads_by_hash = any(map(refuses_hash, errors))
        return by_height

    async def _read_by_height(self, at: Header, calls: Sequence[RpcCall]) -> list[Any]:
        """Reads at a height, which count only if the node's block there is still the header's."""
        height = hex(at.number)
        *answers, block = await self._rpc.batch(
            [*_after(calls, height), ("eth_getBlockByNumber", (height, False))]
        )
        header = typed.header_of(typed.checked(block), at.number)
        if header is None or header.hash != at.hash:
            raise NodeUnavailable(f"The node has another block {at.number}", kind="behind")
        return answers


def _after(calls: Sequence[RpcCall], block: object) -> list[RpcCall]:
    return [(method, (*params, block)) for method, params in calls]


def block_parameter(at: BlockRef) -> str | dict[str, object]:
    if isinstance(at, Header):
        return {"blockHash": hex_of(at.hash), "requireCanonical": True}
    return at if isinstance(at, str) else hex(at)

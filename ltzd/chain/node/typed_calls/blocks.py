"""A node's headers and whole blocks."""

from collections.abc import Sequence
from typing import Any

from ltzd.chain.node.answers import typed
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.typed_calls.requests import NodeRequests, block_parameter
from ltzd.chain.proofs.headers import is_header_of
from ltzd.errors import NodeUnavailable
from ltzd.values import Hash32, hash_of

_HEADERS_AT_ONCE = 200


class BlockCalls(NodeRequests):
    async def block(self, at: int | str) -> Header | None:
        """The canonical header at a height or tag, or None if the node has no such block."""
        answer = await self._ask("eth_getBlockByNumber", block_parameter(at), False)
        return typed.header_of(answer, at if isinstance(at, int) else None)

    async def head_and_final(self) -> tuple[Header, int | None]:
        """The newest header, and the height of `finalized` or None if the node lacks this tag."""
        head, final = await self._rpc.batch(
            [
                ("eth_getBlockByNumber", ("latest", False)),
                ("eth_getBlockByNumber", ("finalized", False)),
            ]
        )
        return typed.newest_header_of(head), typed.final_height_of(final)

    async def head_and_block(self, number: int) -> tuple[Header, Header | None]:
        """The newest header, and the canonical one at a height, in one batch."""
        head, block = await self._rpc.batch(
            [
                ("eth_getBlockByNumber", ("latest", False)),
                ("eth_getBlockByNumber", (hex(number), False)),
            ]
        )
        return typed.newest_header_of(head), typed.header_of(typed.checked(block), number)

    async def headers(self, numbers: Sequence[int]) -> list[Header | None]:
        """Canonical headers at these heights, in one batch, or None for a block the node lacks."""
        answers = await self._rpc.batch(
            [("eth_getBlockByNumber", (hex(number), False)) for number in numbers]
        )
        return [
            typed.header_of(typed.checked(answer), number)
            for answer, number in zip(answers, numbers, strict=True)
        ]

    async def proven_header(self, header: Header) -> Header | None:
        """The fields of a block that its hash proves.

        None if the node lacks the block, or the chain encodes headers in its own way.
        """
        block = await self._ask("eth_getBlockByNumber", hex(header.number), False)
        if not is_header_of(block, header.hash):
            return None
        return typed.header_of(block, header.number)

    async def proven_ancestor(self, header: Header, number: int) -> Hash32 | None:
        """The hash of a block's ancestor at this height, which the blocks from there on prove.

        None if the node lacks one of them, or the chain encodes headers in its own way.
        """
        proved = header.hash
        heights = range(header.number, number, -1)
        for first in range(0, len(heights), _HEADERS_AT_ONCE):
            numbers = heights[first : first + _HEADERS_AT_ONCE]
            answers = await self._rpc.batch(
                [("eth_getBlockByNumber", (hex(each), False)) for each in numbers]
            )
            for block in map(typed.checked, answers):
                if not is_header_of(block, proved):
                    return None
                proved = hash_of(block["parentHash"])
        return proved

    async def full_blocks(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Canonical blocks at these heights with their transactions, as the node shows them."""
        answers = await self._rpc.batch(
            [("eth_getBlockByNumber", (hex(number), True)) for number in numbers]
        )
        blocks = [typed.checked(answer) for answer in answers]
        if not all(isinstance(block, dict) for block in blocks):
            raise NodeUnavailable("The node lacks a block", kind="behind")
        return blocks

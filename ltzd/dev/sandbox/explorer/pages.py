"""The explorer's pages, rendered from the node's answers without any storage."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from ltzd.dev.sandbox import pages
from ltzd.dev.sandbox.explorer.node_reads import NodeReads, quantity
from ltzd.dev.sandbox.explorer.reward_logs import MINTED_TOPIC, LoggedReward, ltz_text, rewards_in
from ltzd.dev.sandbox.explorer.views import (
    BASE,
    block_parts,
    block_row,
    rewards_part,
    transaction_facts,
)
from ltzd.dev.sandbox.pages import text
from ltzd.errors import NodeUnavailable
from ltzd.values import Address, address_of, checksummed, hash_of, hex_of, keccak

_RECENT_BLOCKS = 20
_MINTS_WITHIN_BLOCKS = 5_000
_MAX_MINTS = 100
_BALANCE_OF = keccak(b"balanceOf(address)")[:4]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Explorer:
    def __init__(self, node: NodeReads, ltz: Address | None) -> None:
        self._node = node
        self._ltz = ltz

    def routes(self) -> list[web.RouteDef]:
        pages_by_path: list[tuple[str, Handler]] = [
            ("", self._recent),
            ("/", self._recent),
            ("/block/{number}", self._block),
            ("/tx/{hash}", self._transaction),
            ("/address/{address}", self._address),
        ]
        return [web.get(BASE + path, _with_node_errors(handler)) for path, handler in pages_by_path]

    async def _recent(self, _request: web.Request) -> web.Response:
        head, chain_id = await asyncio.gather(self._node.head(), self._node.chain_id())
        numbers = range(head, max(-1, head - _RECENT_BLOCKS), -1)
        answers = await asyncio.gather(*map(self._node.block, numbers))
        blocks = [block for block in answers if block is not None]
        return pages.page(
            "Recent blocks",
            pages.note(f"Chain {chain_id}, head at block {head}."),
            pages.table(("Block", "Time", "Transactions", "Hash"), [*map(block_row, blocks)]),
        )

    async def _block(self, request: web.Request) -> web.Response:
        number = request.match_info["number"]
        is_number = number.isascii() and number.isdigit() and len(number) <= 18
        block = await self._node.block(int(number), whole=True) if is_number else None
        if block is None:
            return pages.notice(404, "No such block", "The node has no block with this number.")
        return pages.page(f"Block {quantity(block.number)}", *block_parts(block))

    async def _transaction(self, request: web.Request) -> web.Response:
        tx_hash = _hash_or_none(request.match_info["hash"])
        if tx_hash is None:
            message = "A transaction's hash is 0x and 64 hexadecimal digits."
            return pages.notice(404, "No such transaction", message)
        transaction, receipt, head = await asyncio.gather(
            self._node.transaction(tx_hash), self._node.receipt(tx_hash), self._node.head()
        )
        if transaction is None:
            message = "The node has no transaction with this hash, mined or pending."
            return pages.notice(404, "No such transaction", message)
        block = await self._node.block(quantity(receipt.block_number)) if receipt else None
        return pages.page(
            "Transaction",
            pages.facts(transaction_facts(transaction, receipt, block, head)),
            *rewards_part(rewards_in(receipt.logs, self._ltz) if receipt else []),
        )

    async def _address(self, request: web.Request) -> web.Response:
        try:
            address = address_of(request.match_info["address"].lower())
        except ValueError:
            message = "An address is 0x and 40 hexadecimal digits."
            return pages.notice(404, "No such address", message)
        balance, nonce, code = await asyncio.gather(
            self._node.balance(address), self._node.nonce(address), self._node.code(address)
        )
        rows = [
            ("Address", text(checksummed(address))),
            ("Kind", text("Account" if code in {"0x", "0x0"} else "Contract")),
            ("Native coin", text(f"{balance} wei")),
            ("Transactions sent", text(nonce)),
        ]
        if self._ltz is None:
            return pages.page("Address", pages.facts(rows))
        rows.insert(2, ("LTZ", text(await self._ltz_balance(self._ltz, address))))
        minted = await self._minted_to(self._ltz, address)
        return pages.page("Address", pages.facts(rows), *rewards_part(minted))

    async def _ltz_balance(self, ltz: Address, owner: Address) -> str:
        answer = await self._node.call(ltz, _BALANCE_OF + bytes(12) + owner)
        return "LTZ is not deployed here" if answer == "0x" else f"{ltz_text(quantity(answer))} LTZ"

    async def _minted_to(self, ltz: Address, owner: Address) -> list[LoggedReward]:
        since = max(0, await self._node.head() - _MINTS_WITHIN_BLOCKS)
        logs = await self._node.logs(ltz, [MINTED_TOPIC, hex_of(bytes(12) + owner)], since)
        return rewards_in(logs, ltz)[: -_MAX_MINTS - 1 : -1]


def _with_node_errors(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except NodeUnavailable as error:
            return pages.notice(502, "The node cannot be read", f"{error.message}. Is it running?")

    return answer


def _hash_or_none(given: str) -> str | None:
    try:
        return hex_of(hash_of(given.lower()))
    except ValueError:
        return None

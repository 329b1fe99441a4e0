"""The contracts' logs: of a range, of one block, and as the block's receipts prove them."""

from collections.abc import Sequence
from typing import Any

from ltzd.chain.node.answers import typed
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.log_entries import LogEntry, log_entries
from ltzd.chain.node.rpc import RpcCall, RpcError
from ltzd.chain.node.typed_calls.receipts import ReceiptCalls
from ltzd.chain.proofs.receipts import are_receipts_of
from ltzd.errors import NodeUnavailable
from ltzd.values import Address, Hash32, address_of, hex_of


class LogCalls(ReceiptCalls):
    async def head_and_next(
        self, first: int, last: int, *contracts: Address
    ) -> tuple[Header, int | None, list[Header | None], list[dict[str, Any]]]:
        """As `head_and_final` and `headers_and_logs`, in one batch.

        The logs are empty if the node refuses this range, for example because it lacks the blocks.
        The headers are empty, too, if the range is too large for the node.
        """
        head, final, *headers, logs = await self._rpc.batch(
            [
                ("eth_getBlockByNumber", ("latest", False)),
                ("eth_getBlockByNumber", ("finalized", False)),
                *_range_calls(first, last, contracts),
            ]
        )
        if isinstance(logs, RpcError) and typed.is_too_large(logs):
            headers = []
        return (
            typed.newest_header_of(head),
            typed.final_height_of(final),
            [
                typed.header_of(None if isinstance(each, RpcError) else each, first + offset)
                for offset, each in enumerate(headers)
            ],
            [] if isinstance(logs, RpcError) else typed.logs_of(logs, range(first, last + 1)),
        )

    async def headers_and_logs(
        self, first: int, last: int, *contracts: Address
    ) -> tuple[list[Header | None], list[dict[str, Any]]]:
        """Headers of a range and the contracts' logs in it, in one batch.

        Raises RpcError if the node refuses the range, for example as too large.
        """
        *headers, logs = await self._rpc.batch(_range_calls(first, last, contracts))
        if isinstance(logs, RpcError):
            raise logs
        node_logs = typed.logs_of(logs, range(first, last + 1))
        numbered = zip(headers, range(first, last + 1), strict=True)
        return [
            typed.header_of(typed.checked(each), number) for each, number in numbered
        ], node_logs

    async def logs_up_to(
        self, first: int, last: int, *contracts: Address
    ) -> tuple[list[dict[str, Any]], Header | None]:
        """The contracts' logs in a range and the header of its last block, in one batch.

        Raises RpcError if the node refuses the range, for example as too large.
        """
        logs, header = await self._rpc.batch(
            [
                ("eth_getLogs", (_log_filter(contracts, first, last),)),
                ("eth_getBlockByNumber", (hex(last), False)),
            ]
        )
        if isinstance(logs, RpcError):
            raise logs
        node_logs = typed.logs_of(logs, range(first, last + 1))
        return node_logs, typed.header_of(typed.checked(header), last)

    async def range_logs(self, first: int, last: int, *contracts: Address) -> list[LogEntry]:
        """The contracts' logs in a range, whose texts are the node's and unchecked.

        Raises RpcError if the node refuses the range, for example as too large.
        """
        return log_entries(await self._rpc.call("eth_getLogs", _log_filter(contracts, first, last)))

    async def logs_of_block(self, block_hash: Hash32, *contracts: Address) -> list[dict[str, Any]]:
        """The contracts' logs in a block; from its receipts if the node refuses so many logs."""
        where = {
            "blockHash": hex_of(block_hash),
            "address": [hex_of(contract) for contract in contracts],
        }
        try:
            answer = await self._rpc.call("eth_getLogs", where)
            return typed.logs_of(answer, block_hash=block_hash)
        except RpcError as error:
            if typed.is_too_large(error):
                return await self.logs_by_receipts(block_hash, *contracts)
            raise typed.unavailable(error, "eth_getLogs: ") from error

    async def logs_by_receipts(
        self, block_hash: Hash32, *contracts: Address
    ) -> list[dict[str, Any]]:
        """The contracts' logs from the block's receipts: slower, but without an index that lags."""
        kept: list[dict[str, Any]] = []
        try:
            async for receipts in self._receipts_of_block(block_hash):
                logs = typed.logs_of_receipts(receipts, block_hash)
                kept += [log for log in logs if address_of(log["address"]) in contracts]
            return kept
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NodeUnavailable("The node has no proper receipts of a block it named") from error

    async def proven_logs(
        self, block_hash: Hash32, *contracts: Address
    ) -> tuple[list[dict[str, Any]], bool]:
        """As `logs_by_receipts`; also tells whether the block's hash proves that no log is missing.

        Not proved are also the logs of a chain that encodes its headers or receipts in its own way.
        """
        try:
            block = await self._ask("eth_getBlockByHash", hex_of(block_hash), False)
            receipts = await self._all_receipts(block, block_hash)
            logs = typed.logs_of_receipts(receipts, block_hash)
            kept = [log for log in logs if address_of(log["address"]) in contracts]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NodeUnavailable("The node has no proper receipts of a block it named") from error
        return kept, await are_receipts_of(block, receipts, block_hash)


def _range_calls(first: int, last: int, contracts: Sequence[Address]) -> list[RpcCall]:
    """The headers of a range, then the contracts' logs in it."""
    calls: list[RpcCall] = [
        ("eth_getBlockByNumber", (hex(number), False)) for number in range(first, last + 1)
    ]
    calls.append(("eth_getLogs", (_log_filter(contracts, first, last),)))
    return calls


def _log_filter(contracts: Sequence[Address], first: int, last: int) -> dict[str, Any]:
    addresses = [hex_of(contract) for contract in contracts]
    return {"address": addresses, "fromBlock": hex(first), "toBlock": hex(last)}

"""eth_subscribe over one WebSocket: newHeads, logs and newPendingTransactions.

After a reorg, newHeads sends the new blocks, and logs first sends the orphaned logs again with
`removed` set, newest block first. A subscriber that falls too far behind is disconnected.
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from ltzd.dev.tester_chain.block_tree import HeadChange
from ltzd.dev.tester_chain.chain import TesterChain
from ltzd.dev.tester_chain.errors import INVALID_PARAMS, JsonRpcError
from ltzd.dev.tester_chain.execution.transaction import EvmTransaction
from ltzd.dev.tester_chain.json_rpc.log_filter import LogFilter, log_filter
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, RpcMethod
from ltzd.dev.tester_chain.json_rpc.objects import header_object, log_object
from ltzd.dev.tester_chain.json_rpc.params import Params
from ltzd.values import hex_of

WAITING_AT_MOST: Final = 20_000


class Subscriptions:
    """The subscriptions of one connection; a None in `outbox` closes the connection."""

    def __init__(self, chain: TesterChain) -> None:
        self.outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._chain = chain
        self._kinds: dict[str, str | LogFilter] = {}
        chain.head_changed.append(self._on_head_change)
        chain.transaction_pooled.append(self._on_pooled)

    def close(self) -> None:
        self._chain.head_changed.remove(self._on_head_change)
        self._chain.transaction_pooled.remove(self._on_pooled)

    def methods(self) -> Mapping[str, RpcMethod]:
        return {
            "eth_subscribe": RpcMethod(self._subscribe, 2),
            "eth_unsubscribe": RpcMethod(self._unsubscribe, 1),
        }

    async def _subscribe(self, _context: MethodContext, params: Params) -> str:
        kind = params.required(0, "kind")
        if kind not in {"newHeads", "logs", "newPendingTransactions"}:
            raise JsonRpcError(INVALID_PARAMS, f'no "{kind}" subscription in eth namespace')
        options = params.given(1)
        fields = cast("dict[str, object]", options) if isinstance(options, dict) else {}
        logs = log_filter(fields)
        subscription = "0x" + secrets.token_hex(16)
        self._kinds[subscription] = logs if kind == "logs" else str(kind)
        return subscription

    async def _unsubscribe(self, _context: MethodContext, params: Params) -> bool:
        subscription = params.required(0, "subscription")
        return self._kinds.pop(str(subscription), None) is not None

    def _on_head_change(self, change: HeadChange) -> None:
        for subscription, kind in self._kinds.items():
            if isinstance(kind, LogFilter):
                self._notify_logs(subscription, kind, change)
            elif kind == "newHeads":
                for block in change.added:
                    self._notify(subscription, header_object(block))

    def _on_pooled(self, transaction: EvmTransaction) -> None:
        for subscription, kind in self._kinds.items():
            if kind == "newPendingTransactions":
                self._notify(subscription, hex_of(transaction.hash))

    def _notify_logs(self, subscription: str, filter_: LogFilter, change: HeadChange) -> None:
        for removed, blocks in ((True, change.removed), (False, change.added)):
            for block in blocks:
                for log in filter_.logs_of(block):
                    self._notify(subscription, log_object(block, log, removed=removed))

    def _notify(self, subscription: str, result: object) -> None:
        waiting = self.outbox.qsize()
        if waiting >= WAITING_AT_MOST:
            if waiting == WAITING_AT_MOST:
                self.outbox.put_nowait(None)
            return
        notification = {
            "jsonrpc": "2.0",
            "method": "eth_subscription",
            "params": {"subscription": subscription, "result": result},
        }
        self.outbox.put_nowait(msgspec.json.encode(notification))

"""eth_subscribe over one WebSocket: newHeads, logs and newPendingTransactions.

After a reorg newHeads tells the new blocks, and logs tells the old ones again with `removed` set,
newest block first. A listener that falls too far behind is disconnected.
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from ltzd.dev.tester_chain.chain import Chain
from ltzd.dev.tester_chain.errors import INVALID_PARAMS, RpcError
from ltzd.dev.tester_chain.ledger import HeadChange
from ltzd.dev.tester_chain.log_filter import LogFilter, log_filter
from ltzd.dev.tester_chain.node import Method, Node
from ltzd.dev.tester_chain.objects import header_object, log_object
from ltzd.dev.tester_chain.params import Params
from ltzd.dev.tester_chain.transaction import Transaction
from ltzd.values import hex_of

WAITING_AT_MOST: Final = 20_000


class Subscriptions:
    """Of one connection; `outbox` holds what is to be written to it, None ends it."""

    def __init__(self, chain: Chain) -> None:
        self.outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._chain = chain
        self._kinds: dict[str, str | LogFilter] = {}
        chain.head_changed.append(self._hear_head)
        chain.pooled.append(self._hear_pooled)

    def close(self) -> None:
        self._chain.head_changed.remove(self._hear_head)
        self._chain.pooled.remove(self._hear_pooled)

    def methods(self) -> Mapping[str, Method]:
        return {
            "eth_subscribe": Method(self._subscribe, 2),
            "eth_unsubscribe": Method(self._unsubscribe, 1),
        }

    async def _subscribe(self, _node: Node, params: Params) -> str:
        kind = params.required(0, "kind")
        if kind not in {"newHeads", "logs", "newPendingTransactions"}:
            raise RpcError(INVALID_PARAMS, f'no "{kind}" subscription in eth namespace')
        asked = params.given(1)
        wanted = log_filter(cast("dict[str, object]", asked) if isinstance(asked, dict) else {})
        subscription = "0x" + secrets.token_hex(16)
        self._kinds[subscription] = wanted if kind == "logs" else str(kind)
        return subscription

    async def _unsubscribe(self, _node: Node, params: Params) -> bool:
        subscription = params.required(0, "subscription")
        return self._kinds.pop(str(subscription), None) is not None

    def _hear_head(self, change: HeadChange) -> None:
        for subscription, kind in self._kinds.items():
            if isinstance(kind, LogFilter):
                self._tell_logs(subscription, kind, change)
            elif kind == "newHeads":
                for block in change.added:
                    self._tell(subscription, header_object(block))

    def _hear_pooled(self, one: Transaction) -> None:
        for subscription, kind in self._kinds.items():
            if kind == "newPendingTransactions":
                self._tell(subscription, hex_of(one.hash))

    def _tell_logs(self, subscription: str, wanted: LogFilter, change: HeadChange) -> None:
        for removed, blocks in ((True, change.removed), (False, change.added)):
            for block in blocks:
                for log in wanted.logs_of(block):
                    self._tell(subscription, log_object(block, log, removed=removed))

    def _tell(self, subscription: str, result: object) -> None:
        waiting = self.outbox.qsize()
        if waiting >= WAITING_AT_MOST:
            if waiting == WAITING_AT_MOST:
                self.outbox.put_nowait(None)
            return
        notice = {
            "jsonrpc": "2.0",
            "method": "eth_subscription",
            "params": {"subscription": subscription, "result": result},
        }
        self.outbox.put_nowait(msgspec.json.encode(notice))

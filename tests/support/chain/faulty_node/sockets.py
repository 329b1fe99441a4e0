"""A faulty node's WebSocket: calls take the way of HTTP requests, subscriptions that of the chain.

Notifications of new heads fit the node's view: a node that is behind shows its own head, and a
frozen node shows none.
"""

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import WSMsgType, web

if TYPE_CHECKING:
    from tests.support.chain.faulty_node.node import FaultyNode

_SUBSCRIBE = ("eth_subscribe", "eth_unsubscribe")
_MOST_BYTES = 64 * 1024 * 1024


class Socket:
    """One client's WebSocket, with a socket of its own to the chain."""

    def __init__(
        self, node: "FaultyNode", session: aiohttp.ClientSession, request: web.Request
    ) -> None:
        self._node = node
        self._session = session
        self._request = request
        self._client = web.WebSocketResponse(max_msg_size=_MOST_BYTES)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, chain_url: str) -> web.WebSocketResponse:
        """Serves until either side ends; calls of one socket are answered concurrently."""
        await self._client.prepare(self._request)
        try:
            async with self._session.ws_connect(chain_url, max_msg_size=_MOST_BYTES) as chain:
                self._begin(self._pass_notifications(chain))
                async for message in self._client:
                    if message.type in {WSMsgType.TEXT, WSMsgType.BINARY}:
                        self._begin(self._answer(chain, json.loads(message.data)))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return self._client

    def abort(self) -> None:
        """Breaks the connection without a close frame."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, chain: aiohttp.ClientWebSocketResponse, body: Any) -> None:
        faults = self._node.faults
        if isinstance(body, dict) and body["method"] in _SUBSCRIBE:
            if not faults.hung:
                await chain.send_json(body)
            return
        try:
            async with self._session.post(self._node.url, json=body) as reply:
                text = await reply.text()
        except aiohttp.ClientError:
            self.abort()
            return
        for _ in range(2 if faults.doubled == "reply" else 1):
            await self._send(text)

    async def _pass_notifications(self, chain: aiohttp.ClientWebSocketResponse) -> None:
        async for message in chain:
            body = json.loads(message.data)
            if body.get("method") != "eth_subscription":
                await self._send(message.data)
                continue
            faults = self._node.faults
            if faults.hung or faults.silent or faults.frozen is not None:
                continue
            body["params"]["result"] = await self._node.notified(body["params"]["result"])
            await self._send(json.dumps(body))
        self.abort()

    async def _send(self, text: str) -> None:
        with contextlib.suppress(ConnectionError):  # The client may be gone by now.
            await self._client.send_str(text)

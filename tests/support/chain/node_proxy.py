"""A proxy between ltzd and a node with the faults of networks: refused, lost, delayed, HTTP 502.

Replies are lost only after the node has accepted the request, which is the dangerous case.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import aiohttp
from aiohttp import web

from tests.support.ports import free_port

PUBLISH = "eth_sendRawTransaction"


class NodeProxy:
    """The proxy. Faults are plain attributes, which a test resets to end a fault."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._port = free_port()
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.published: list[str] = []
        """Signed bytes that were forwarded, in order."""
        self.lose_publications = 0
        """The number of next publications that reach the node, but whose reply is lost."""
        self.hold: Literal["request", "reply", ""] = ""
        """Publications hang, before or after the node has them, until their sender is gone."""
        self.held: list[str] = []
        self.refuses: Callable[[str], str | None] = lambda _raw: None
        """The error text for signed bytes, which never reach the node then, or None to forward."""
        self.delay_seconds = 0.0
        self.bad_gateway = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def connect(self) -> None:
        """Listens, after `cut` again on the same port."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector)
        self._runner = web.AppRunner(
            self._application(), shutdown_timeout=0, access_log=None, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/", self._pass_on)
        return app

    async def cut(self) -> None:
        """Drops every connection and refuses new ones."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def close(self) -> None:
        await self.cut()
        if self._session is not None:
            await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.bad_gateway:
            return web.Response(status=502, text="<html>Bad Gateway</html>")
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        calls = calls_of(body)
        raws = [
            call["params"][0] for call in calls if call["method"] == PUBLISH and self._takes(call)
        ]
        await self._hang_if(raws, "request")
        answer, status = await self._answered(body)
        self.published += raws
        await self._hang_if(raws, "reply")
        if raws and self.lose_publications > 0:
            self.lose_publications -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=status, body=answer, content_type="application/json")

    def _takes(self, call: Mapping[str, Any]) -> bool:
        return call["method"] != PUBLISH or self.refuses(call["params"][0]) is None

    async def _answered(self, body: Any) -> tuple[bytes, int]:
        """Returns the node's answer, with refusals for the calls that were not forwarded."""
        refusals = [self._refusal(call) for call in calls_of(body) if not self._takes(call)]
        if not refusals:
            return await self._forward(body)
        if not isinstance(body, list):
            return json.dumps(refusals[0]).encode(), 200
        others = [call for call in body if self._takes(call)]
        if not others:
            return json.dumps(refusals).encode(), 200
        answer, status = await self._forward(others)
        return json.dumps([*json.loads(answer), *refusals]).encode(), status

    def _refusal(self, call: Mapping[str, Any]) -> dict[str, object]:
        text = self.refuses(call["params"][0])
        return {"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32000, "message": text}}

    async def _forward(self, body: Any) -> tuple[bytes, int]:
        assert self._session is not None
        async with self._session.post(self._target, json=body) as reply:
            return await reply.read(), reply.status

    async def _hang_if(self, raws: list[str], what: str) -> None:
        if raws and self.hold == what:
            self.held += raws
            await asyncio.Event().wait()  # aiohttp cancels this handler with its connection


def calls_of(body: Any) -> list[Mapping[str, Any]]:
    """The calls of a batch, or a single call, as a list."""
    return body if isinstance(body, list) else [body]


@asynccontextmanager
async def a_node_proxy(target: str) -> AsyncIterator[NodeProxy]:
    proxy = NodeProxy(target)
    await proxy.connect()
    try:
        yield proxy
    finally:
        await proxy.close()

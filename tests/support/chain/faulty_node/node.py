"""A node with faults that a test switches on and off: a proxy in front of a real chain.

`faults` holds the faults of now (`faults.py`) and is replaced at any time; `cut` and `connect` are
a node that is down and up again. `views.py` answers as of an older head, `refusals.py` has the
wordings of clients and providers, `lies.py` changes answers, `sockets.py` serves WebSockets.
"""

import asyncio
import gzip
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from aiohttp import web

from tests.support.chain.faulty_node.faults import Faults
from tests.support.chain.faulty_node.refusals import Refusal
from tests.support.chain.faulty_node.sockets import Socket
from tests.support.chain.faulty_node.views import OlderView, UnknownBlockError, frozen_view
from tests.support.chain.node_proxy import NodeProxy, calls_of
from tests.support.chain.tester import RpcRefusedError

_HEADER_NOT_FOUND = {"code": -32000, "message": "header not found"}


class FaultyNode(NodeProxy):
    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._own_target = target
        self.faults = Faults()
        self.called: Counter[str] = Counter()
        """Calls that came, by method."""
        self.answered: Counter[str] = Counter()
        """Calls whose answer left the node whole, by method."""
        self.longest_batch = 0
        self.refused_by_size: set[str] = set()
        """Batches, and ranges of getLogs, that were refused as too large, without their ids."""
        self.repeated: list[str] = []
        """Requests that came again unchanged after their refusal as too large."""
        self._parity = itertools.cycle((True, False))
        self._sockets: set[Socket] = set()

    @property
    def ws_url(self) -> str:
        return self.url.replace("http://", "ws://")

    def heal(self) -> None:
        self.faults = Faults()

    async def recover(self) -> None:
        """Ends all faults, also of a node that is down or follows another chain."""
        self.heal()
        self._target = self._own_target
        await self.connect()

    def forget(self) -> None:
        """Forgets which requests came and were refused."""
        self.called.clear()
        self.answered.clear()
        self.refused_by_size.clear()
        self.repeated.clear()

    async def freeze(self) -> None:
        """The head stops here, and the node keeps its branch through reorgs of the chain."""
        self.faults = replace(self.faults, frozen=await frozen_view(self.ask))

    def lead_to(self, target: str) -> None:
        """The node follows another chain until it recovers."""
        self._target = target

    async def connect(self) -> None:
        """Listens, unless the node listens already."""
        if self._runner is None:
            await super().connect()

    async def cut(self) -> None:
        self.drop_sockets()
        await super().cut()

    def drop_sockets(self) -> None:
        """Breaks all open WebSockets without a close frame."""
        for socket in list(self._sockets):
            socket.abort()

    async def ask(self, method: str, *params: object) -> Any:
        """Calls the chain itself, without faults. Raises RpcRefusedError."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        body, _ = await super()._forward(request)
        return _result(json.loads(body))

    # Requests

    def _application(self) -> web.Application:
        app = super()._application()
        app.router.add_get("/", self._upgrade)
        return app

    async def _upgrade(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        socket = Socket(self, self._session, request)
        self._sockets.add(socket)
        try:
            return await socket.serve(self._target)
        finally:
            self._sockets.discard(socket)

    async def notified(self, result: Any) -> Any:
        """What a subscription shows of a new head or of another notification."""
        faults = self.faults
        if not isinstance(result, dict) or "parentHash" not in result:
            return result
        if faults.behind:
            height = max(0, int(result["number"], 16) - faults.behind)
            result = await OlderView(self.ask, height).head()
        for lie in faults.lies:
            result = lie("newHeads", (), result)
        return result

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        faults, body = self.faults, await request.json()
        refusal = self._refusal_of(body, len(await request.read()))
        if faults.hung:
            await asyncio.Event().wait()  # aiohttp cancels this handler with its connection
        if faults.dropped:
            return _abort(request)
        if refusal is not None:
            return _refused(refusal, body)
        response = await super()._pass_on(request)
        await asyncio.sleep(faults.late_seconds)
        if faults.lost or request.transport is None:
            return _abort(request)
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes)
        return await self._shaped(request, faults, response.body, response.status)

    def _refusal_of(self, body: Any, size: int) -> Refusal | None:
        """Records a request; returns the refusal of the whole request, if any."""
        calls = calls_of(body)
        self.called.update(call["method"] for call in calls)
        self.longest_batch = max(self.longest_batch, len(calls))
        batch = _without_ids(calls)
        ranges = [_without_ids([call]) for call in calls if call["method"] == "eth_getLogs"]
        self.repeated += self.refused_by_size.intersection((batch, *ranges))
        by_size = self.faults.limits.refusal_of_request(body, size)
        if by_size is not None:
            self.refused_by_size.add(batch)
        return self.faults.refusal or by_size

    async def _shaped(
        self, request: web.Request, faults: Faults, body: bytes, status: int
    ) -> web.StreamResponse:
        headers = {"Content-Type": "application/json"}
        if faults.truncated == "text":
            body = body[: len(body) // 2]
        if faults.gzipped:
            body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
        if faults.truncated == "connection":
            response = web.StreamResponse(status=status, headers=headers)
            response.content_length = len(body)
            await response.prepare(request)
            await response.write(body[: len(body) // 2])
            return _abort(request)
        if not faults.truncated:
            self.answered.update(call["method"] for call in calls_of(await request.json()))
        return web.Response(status=status, body=body, headers=headers)

    # Answers

    async def _forward(self, body: Any) -> tuple[bytes, int]:
        faults = self.faults
        replies = await self._replies(calls_of(body), faults)
        if not isinstance(body, list):
            return json.dumps(replies[0]).encode(), 200
        if faults.doubled == "reply":
            replies = [reply for reply in replies for _ in range(2)]
        if faults.reordered:
            replies.reverse()
        return json.dumps(replies).encode(), 200

    async def _replies(
        self, calls: Sequence[Mapping[str, Any]], faults: Faults
    ) -> list[dict[str, Any]]:
        view = await self.view(faults)
        if view is None:
            replies = await self._chain_replies(calls)
            if faults.doubled == "request":
                replies = await self._chain_replies(calls)
        else:
            replies = [await _reply_of_view(view, call) for call in calls]
        return [
            self._limited(call, _with_lies(call, reply, faults), faults)
            for call, reply in zip(calls, replies, strict=True)
        ]

    async def view(self, faults: Faults) -> OlderView | None:
        """The older view that answers this request, or None for the chain's own."""
        if faults.alternates and next(self._parity):
            return None
        if faults.frozen is not None or not faults.behind:
            return faults.frozen
        height = int(await self.ask("eth_blockNumber"), 16)
        return OlderView(self.ask, max(0, height - faults.behind))

    async def _chain_replies(self, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The chain's replies in the order of the calls."""
        numbered = [{**call, "id": number} for number, call in enumerate(calls)]
        body, _ = await super()._forward(numbered)
        by_number = {reply["id"]: reply for reply in json.loads(body)}
        return [{**by_number[number], "id": call.get("id")} for number, call in enumerate(calls)]

    def _limited(
        self, call: Mapping[str, Any], reply: dict[str, Any], faults: Faults
    ) -> dict[str, Any]:
        """The reply, or the refusal of a getLogs as too wide or with too many results."""
        if call["method"] != "eth_getLogs" or "result" not in reply:
            return reply
        limits = faults.limits
        refusal = limits.refusal_of_range(call["params"][0]) or limits.refusal_of_results(
            len(reply["result"])
        )
        if refusal is None:
            return reply
        self.refused_by_size.add(_without_ids([call]))
        return {"jsonrpc": "2.0", "id": call["id"], "error": refusal.error}


def _without_ids(calls: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps([(call["method"], call.get("params")) for call in calls], sort_keys=True)


async def _reply_of_view(view: OlderView, call: Mapping[str, Any]) -> dict[str, Any]:
    reply = {"jsonrpc": "2.0", "id": call.get("id")}
    try:
        return {**reply, "result": await view.result(call["method"], list(call.get("params", ())))}
    except UnknownBlockError:
        return {**reply, "error": _HEADER_NOT_FOUND}
    except RpcRefusedError as error:
        details = {"code": error.code, "message": error.message}
        return {**reply, "error": details | ({"data": error.data} if error.data else {})}


def _with_lies(call: Mapping[str, Any], reply: dict[str, Any], faults: Faults) -> dict[str, Any]:
    if "result" not in reply:
        return reply
    result = reply["result"]
    for lie in faults.lies:
        result = lie(call["method"], call.get("params", ()), result)
    return {**reply, "result": result}


def _result(reply: dict[str, Any]) -> Any:
    if "error" in reply:
        raise RpcRefusedError(reply["error"])
    return reply["result"]


def _refused(refusal: Refusal, body: Any) -> web.Response:
    first_id = None if isinstance(body, list) else body.get("id")
    return web.Response(
        status=refusal.status,
        body=refusal.body(first_id),
        headers=refusal.headers,
        content_type="application/json" if refusal.text else "text/html",
    )


def _abort(request: web.Request) -> web.Response:
    """Breaks a connection at once; the response is never sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@asynccontextmanager
async def faulty_nodes(target: str, count: int) -> AsyncIterator[list[FaultyNode]]:
    """Nodes with faults of their own in front of one chain."""
    nodes = [FaultyNode(target) for _ in range(count)]
    async with AsyncExitStack() as stack:
        for node in nodes:
            stack.push_async_callback(node.close)
            await node.connect()
        yield nodes


@asynccontextmanager
async def a_faulty_node(target: str) -> AsyncIterator[FaultyNode]:
    async with faulty_nodes(target, 1) as (node,):
        yield node

"""A real HTTP server that answers JSON-RPC as a test scripts it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from ltzd.chain.node.learned_limits import NodeLimits
from ltzd.chain.node.rpc import Rpc, RpcPolicy

Respond = Callable[[Any], object]
"""From the request's JSON to the answer: an object, or bytes to be sent as they are."""


@dataclass(frozen=True)
class HttpAnswer:
    """An answer with its status and headers; bytes are sent as they are."""

    body: object
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


NEVER = object()
"""An answer that comes after the client's timeout."""


@asynccontextmanager
async def a_server(
    respond: Respond,
    *,
    status: int = 200,
    timeout_seconds: float = 2.0,
    policy: RpcPolicy | None = None,
    limits: NodeLimits | None = None,
) -> AsyncIterator[Rpc]:
    async def answer(request: web.Request) -> web.Response:
        answer = respond(await request.json())
        if answer is NEVER:
            await asyncio.sleep(timeout_seconds * 5)
            answer = None
        http = answer if isinstance(answer, HttpAnswer) else HttpAnswer(answer, status)
        body = http.body if isinstance(http.body, bytes) else json.dumps(http.body).encode()
        headers = {"Content-Type": "application/json", **http.headers}
        return web.Response(body=body, status=http.status, headers=headers)

    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    policy = policy or RpcPolicy(timeout_seconds=timeout_seconds)
    try:
        async with Rpc(f"http://127.0.0.1:{runner.addresses[0][1]}", policy, limits) as rpc:
            yield rpc
    finally:
        await runner.cleanup()


def result(request: Any, value: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request["id"], "result": value}


def error(request: Any, message: str, code: int = -32000) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}}


def always(value: object) -> Respond:
    """Answers every call with the same result, alone or in a batch."""

    def respond(request: Any) -> object:
        if isinstance(request, list):
            return [result(each, value) for each in request]
        return result(request, value)

    return respond


def refusing(message: str) -> Respond:
    def respond(request: Any) -> object:
        if isinstance(request, list):
            return [error(each, message) for each in request]
        return error(request, message)

    return respond

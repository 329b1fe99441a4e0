"""Serves one request with those steps of `Sanic.handle_request` that ltzd uses, in its order.

Sanic checks every result for being awaitable, and wraps each step in a coroutine of its own, which
takes a tenth of the time of an event. Here handlers return a Reply,
middleware of requests returns a Reply or None, directly or as a coroutine, and middleware of
responses changes the Reply. Every failure is answered by Sanic's own `handle_exception`.
"""

from asyncio import CancelledError
from inspect import iscoroutine
from typing import Any

import structlog
from sanic.request import Request

from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT, read_body
from ltzd.http.responses import Reply

log = structlog.get_logger()

_LONGEST_CACHED_PATH = 256
"""The router keeps the routes of the last thousand paths; of long ones they would take 32 MB."""


async def handle(request: Request) -> None:
    """Answer the request, also if that fails."""
    app: Any = request.app
    has_begun = False
    try:
        route, handler, parameters = _resolve(app.router, request.path, request.method)
        request.route = route
        stream: Any = request.stream
        has_begun = True  # from here on `handle_exception` must not run the middleware again
        for middleware in route.extra.request_middleware:
            reply = middleware.func(request)
            if reply is not None and iscoroutine(reply):
                reply = await reply
            if reply is not None:
                break
        else:
            if stream.request_body and not route.extra.ignore_body:
                await read_body(request, EVENT_HANDLER_LIMIT)  # it has no meaning, as of a GET
            reply = await handler(request, **parameters)
        stream.respond(reply)
        _run_response_middleware(request, reply)
        if not stream.send_at_once(reply):
            await reply.send(end_stream=True)
    except CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - every failure is answered
        await app.handle_exception(request, error, run_middleware=not has_begun)


def _resolve(router: Any, path: str, method: str) -> tuple[Any, Any, dict[str, Any]]:
    """The path's route, handler and parameters. Raises NotFound and MethodNotAllowed.

    No route depends on the Host: it would be one more part of the cache's keys that callers choose.
    """
    is_cached = len(path) <= _LONGEST_CACHED_PATH
    find = router.get if is_cached else router._get  # noqa: SLF001 - `get` without its cache
    resolved: tuple[Any, Any, dict[str, Any]] = find(path, method, None)
    return resolved


def _run_response_middleware(request: Request, reply: Reply) -> None:
    route: Any = request.route
    request._response_middleware_started = True  # noqa: SLF001 - for `handle_exception`
    try:
        for middleware in route.extra.response_middleware:
            middleware.func(request, reply)
    except Exception:
        log.exception("http.response_middleware_failed")
    request.responded = True

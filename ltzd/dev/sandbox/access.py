"""Middleware of the sandbox: access from loopback names only, and one shape for errors.

The sandbox reveals private keys, so a web page must not reach it. DNS rebinding shows as a foreign
Host and a foreign page as a foreign Origin; both are refused with 403 on every path.
"""

import re

from aiohttp import web
from aiohttp.typedefs import Handler
from structlog import get_logger

from ltzd.dev.sandbox.pages import notice
from ltzd.dev.sandbox.requests import BadInputError, json_reply
from ltzd.errors import Misconfigured

_LOOPBACK = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
_PAGES = ("/explorer", "/pay/", "/site/", "/wallet/")

_log = get_logger(__name__)


@web.middleware
async def loopback_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1 or not _LOOPBACK.fullmatch(hosts[0]):
        return json_reply({"error": "Host: must be a loopback name"}, 403)
    for origin in request.headers.getall("Origin", []):
        scheme, _, host = origin.partition("://")
        if scheme not in {"http", "https"} or not _LOOPBACK.fullmatch(host):
            return json_reply({"error": "Origin: must be a loopback origin"}, 403)
    return await handler(request)


@web.middleware
async def error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BadInputError as error:
        body = {"error": str(error), "code": "invalid_data", "field": error.field}
        return json_reply(body, 400)
    except web.HTTPException as error:
        return _error_reply(request, error)
    except ConnectionResetError:
        # The client disconnected during an ordered delay.
        return web.Response()
    except Misconfigured as error:
        _log.error("sandbox_broken", reason=error.message)
        return json_reply({"error": error.message}, 500)


def _error_reply(request: web.Request, error: web.HTTPException) -> web.StreamResponse:
    if 300 <= error.status < 400:
        return error
    if request.path.startswith(_PAGES):
        return notice(error.status, error.reason, "This page does not exist.")
    reply = json_reply({"error": error.reason}, error.status)
    if "Allow" in error.headers:
        reply.headers["Allow"] = error.headers["Allow"]
    return reply

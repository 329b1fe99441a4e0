"""Who may speak to the sandbox, and what every refusal looks like.

The sandbox gives private keys away, so a web page must not reach it: a name that an attacker
rebinds to 127.0.0.1 shows in Host, and a foreign page in Origin. Both are 403 on every path.
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
        return _in_our_shape(request, error)
    except ConnectionResetError:
        # Who gave up waiting out an ordered delay hears nothing more, and it is no fault of ours.
        return web.Response()
    except Misconfigured as error:
        _log.error("sandbox_broken", reason=error.message)
        return json_reply({"error": error.message}, 500)


def _in_our_shape(request: web.Request, error: web.HTTPException) -> web.StreamResponse:
    if 300 <= error.status < 400:
        return error
    if request.path.startswith(_PAGES):
        return notice(error.status, error.reason, "There is no such page here.")
    reply = json_reply({"error": error.reason}, error.status)
    if "Allow" in error.headers:
        reply.headers["Allow"] = error.headers["Allow"]
    return reply

"""Lets web pages of this machine call the chain, and refuses the pages of other origins with 403.

A WebSocket is not subject to CORS, so the refusal covers every request that names an origin. A
client that is no browser names none.
"""

import re
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

_LOOPBACK: Final = re.compile(
    r"https?://(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE
)
_PREFLIGHT_SECONDS: Final = 86_400


@web.middleware
async def loopback_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    origins = request.headers.getall(hdrs.ORIGIN, [])
    if not origins:
        return await handler(request)
    if not all(map(_LOOPBACK.fullmatch, origins)):
        return web.Response(status=403, text="Only pages of this machine may call this chain.\n")
    if request.method == hdrs.METH_OPTIONS:
        return web.Response(status=204, headers=_preflight(request, origins[0]))
    response = await handler(request)
    if not response.prepared:
        response.headers.update(_allowed(origins[0]))
    return response


def _allowed(origin: str) -> dict[str, str]:
    return {hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: origin, hdrs.VARY: hdrs.ORIGIN}


def _preflight(request: web.Request, origin: str) -> dict[str, str]:
    headers = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "content-type")
    return _allowed(origin) | {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: "GET, POST",
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: headers,
        hdrs.ACCESS_CONTROL_MAX_AGE: str(_PREFLIGHT_SECONDS),
    }

"""Forwards the host site's loyalty routes to ltzd, as the site's plugin does.

Forwarded to ltzd: method, query, body, Content-Type, the visitor's log-in cookies and nonce, and
the site's name as Host. Returned to the visitor: status, body, Content-Type and a new nonce.
"""

import aiohttp
from aiohttp import web
from structlog import get_logger
from yarl import URL

from ltzd.dev.sandbox.site import errors as site_errors
from ltzd.dev.sandbox.site.api import NONCE, PREFIX, REST_PREFIX
from ltzd.dev.sandbox.site.users import HOST
from ltzd.providers.host_sites import LOGIN_COOKIES

NAMESPACE = "loyalty"

_ROUTES = f"/{REST_PREFIX}/{NAMESPACE}/v1"
# ltzd answers a redemption once it is mined.
_TIMEOUT = aiohttp.ClientTimeout(total=100, sock_connect=5)

_log = get_logger(__name__)


class DemoSiteProxy:
    def __init__(self) -> None:
        self._ltzd_url: str | None = None
        self._http: aiohttp.ClientSession | None = None

    def set_ltzd_url(self, ltzd_url: str) -> None:
        """Set ltzd's public URL; before that, every request is answered with 503."""
        self._ltzd_url = ltzd_url.rstrip("/")

    def routes(self) -> list[web.RouteDef]:
        """Each route has one path segment after the version."""
        return [web.route("*", f"{PREFIX}{_ROUTES}/{{path:[A-Za-z0-9_-]+}}", self._forward)]

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def _forward(self, request: web.Request) -> web.Response:
        if self._ltzd_url is None:
            return _unavailable("The loyalty programme is not connected to this site yet.")
        path = f"{self._ltzd_url}{_ROUTES}/{request.match_info['path']}"
        url = URL(f"{path}?{request.rel_url.raw_query_string}", encoded=True)
        try:
            return await self._forwarded(request, url)
        except web.HTTPRequestEntityTooLarge:
            return site_errors.refusal(413, "rest_too_large", "The request is too large.")
        except (aiohttp.ClientError, TimeoutError) as error:
            _log.warning("demo_site_proxy_failed", error=type(error).__name__)
            return _unavailable("The loyalty programme does not answer. Please try again soon.")

    async def _forwarded(self, request: web.Request, url: URL) -> web.Response:
        body = await request.read()
        async with self._client().request(
            request.method,
            url,
            data=body or None,
            headers=_forwarded_headers(request),
            allow_redirects=False,
        ) as answer:
            headers = {
                name: answer.headers[name]
                for name in ("Content-Type", NONCE)
                if name in answer.headers
            }
            return web.Response(
                body=await answer.read(),
                status=answer.status,
                headers={**headers, "Cache-Control": "no-store"},
            )

    def _client(self) -> aiohttp.ClientSession:
        if self._http is None:
            # A new connection for each request, as in PHP: ltzd may have closed an idle one.
            self._http = aiohttp.ClientSession(
                timeout=_TIMEOUT,
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
            )
        return self._http


def _forwarded_headers(request: web.Request) -> dict[str, str]:
    headers = {"Host": HOST, "Accept-Encoding": "identity"}
    for name in ("Content-Type", NONCE):
        if name in request.headers:
            headers[name] = request.headers[name]
    login = [
        cookie.strip()
        for cookie in request.headers.get("Cookie", "").split(";")
        if cookie.strip().startswith(LOGIN_COOKIES)
    ]
    return headers | ({"Cookie": "; ".join(login)} if login else {})


def _unavailable(message: str) -> web.Response:
    return site_errors.refusal(503, "api_error", message)

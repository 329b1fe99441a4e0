"""The demo site: the pages of a small café, whose visitors use the site plugin's API.

A log-in needs only a user name and sets the host platform's cookie. The page's script reads
everything else from the API, with the nonce that the page contains.
"""

from urllib.parse import urlencode

from aiohttp import web

from ltzd.dev.sandbox.requests import json_reply
from ltzd.dev.sandbox.site.api import PREFIX
from ltzd.dev.sandbox.site.demo_files import DemoSiteFiles
from ltzd.dev.sandbox.site.sessions import SiteSession, SiteSessions
from ltzd.dev.sandbox.site.users import SiteUsers, is_username

HOME = f"{PREFIX}/"
WALLET_APP = "/wallet/"
"""The page that plays a member's wallet app."""

_LOG_IN = f"{PREFIX}/log-in"
_LOG_OUT = f"{PREFIX}/log-out"
_BAD_NAME = (
    "A name has 1 to 60 letters, digits, inner spaces and the signs _ . @ -. Please choose another."
)


class DemoSite:
    def __init__(self, users: SiteUsers, sessions: SiteSessions) -> None:
        self._users = users
        self._sessions = sessions
        self._files = DemoSiteFiles()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(HOME, self._home),
            *(web.get(f"{PREFIX}/{name}", self._file) for name in self._files.names),
            *(web.get(path, self._redirect_home) for path in (PREFIX, _LOG_IN, _LOG_OUT)),
            web.post(_LOG_IN, self._log_in),
            web.post(_LOG_OUT, self._log_out),
        ]

    async def _file(self, request: web.Request) -> web.Response:
        return self._files.file(request.path.rpartition("/")[2])

    async def _redirect_home(self, _request: web.Request) -> web.Response:
        return _see_home()

    async def _home(self, request: web.Request) -> web.Response:
        session = self._sessions.session_in(request.cookies)
        if session.user is None:
            return self._welcome()
        return self._files.page(
            "account.html",
            username=session.user.username,
            email=session.user.email,
            nonce=self._sessions.nonce(session),
            wallet_app=f"..{WALLET_APP}?{urlencode({'email': session.user.email})}",
        )

    def _welcome(self, username: str = "", fault: str = "") -> web.Response:
        return self._files.page(
            "welcome.html",
            status=400 if fault else 200,
            username=username,
            fault=fault,
            invalid="true" if fault else "false",
            nonce="",
        )

    async def _log_in(self, request: web.Request) -> web.Response:
        if not is_own_form(request):
            return _foreign_form()
        given = (await request.post()).get("username", "")
        username = given.strip() if isinstance(given, str) else ""
        if not is_username(username):
            return self._welcome(username[:60], _BAD_NAME)
        user = await self._users.find_or_create(username)
        answer = _see_home()
        for name, value in self._sessions.cookies(self._sessions.open(user)).items():
            answer.set_cookie(name, value, path=HOME, httponly=True, samesite="Lax")
        return answer

    async def _log_out(self, request: web.Request) -> web.Response:
        if not is_own_form(request):
            return _foreign_form()
        answer = _see_home()
        for name in self._sessions.cookies(SiteSession()):
            answer.del_cookie(name, path=HOME, httponly=True, samesite="Lax")
        return answer


def is_own_form(request: web.Request) -> bool:
    """Whether the form is this origin's: `access` admits other loopback origins too."""
    return request.headers.get("Origin") in (None, str(request.url.origin()))


def _foreign_form() -> web.Response:
    return json_reply({"error": "Origin: must be the site's own"}, 403)


def _see_home() -> web.Response:
    return web.Response(status=303, headers={"Location": HOME, "Cache-Control": "no-store"})

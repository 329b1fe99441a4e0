"""The host site's REST API, as far as ltzd asks it: whose log-in is this?

Speaks WordPress's. A cookie counts with a nonce of its session only: without one its bearer is a
stranger, and with a wrong one he is refused. An application password needs none.
"""

import base64
import binascii
from datetime import UTC, datetime

from aiohttp import web

from ltzd.dev.sandbox import site_errors
from ltzd.dev.sandbox.requests import json_reply
from ltzd.dev.sandbox.site_sessions import SiteSessions
from ltzd.dev.sandbox.site_users import SiteUser, SiteUsers, is_password_of

PREFIX = "/site"
REST_PREFIX = "wp-json"
NONCE = "X-WP-Nonce"

_CONTEXTS = ("view", "embed", "edit")
_AVATAR_SIZES = ("24", "48", "96")


class SiteApi:
    def __init__(self, users: SiteUsers, sessions: SiteSessions) -> None:
        self._users = users
        self._sessions = sessions

    def routes(self) -> list[web.RouteDef]:
        rest = f"{PREFIX}/{REST_PREFIX}"
        return [
            web.get(f"{rest}/wp/v2/users/me", self._me),
            web.route("*", f"{rest}/{{path:.*}}", self._no_route),
        ]

    async def _no_route(self, _request: web.Request) -> web.Response:
        return site_errors.no_route()

    async def _me(self, request: web.Request) -> web.Response:
        session = self._sessions.session_in(request.cookies)
        given = None if session.user is not None else _password_login(request)
        if given is not None:
            user = self._by_password(*given)
            return user if isinstance(user, web.Response) else _told(request, user)
        nonce = request.query.get("_wpnonce", request.headers.get(NONCE))
        if nonce is None:
            return _told(request, None)
        if not self._sessions.is_nonce(nonce, session):
            return site_errors.bad_nonce()
        reply = _told(request, session.user)
        reply.headers[NONCE] = self._sessions.nonce(session)
        return reply

    def _by_password(self, login: str, password: str) -> SiteUser | web.Response:
        is_email = "@" in login
        user = self._users.named(login) or (self._users.by_email(login) if is_email else None)
        if user is None:
            return site_errors.bad_login("invalid_email" if is_email else "invalid_username")
        if not is_password_of(user, password):
            return site_errors.bad_login("incorrect_password")
        return user


def _password_login(request: web.Request) -> tuple[str, str] | None:
    """Name and password of a Basic header; what is none is passed over."""
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    try:
        pair = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    login, colon, password = pair.partition(":")
    return (login, password) if scheme.lower() == "basic" and colon else None


def _told(request: web.Request, user: SiteUser | None) -> web.Response:
    context = request.query.get("context", "view")
    if context not in _CONTEXTS:
        return site_errors.bad_context(_CONTEXTS)
    if user is None:
        return site_errors.not_logged_in()
    return json_reply(user_as_json(user, str(request.url.origin()) + PREFIX, context))


def user_as_json(user: SiteUser, site: str, context: str) -> dict[str, object]:
    slug = user.username.lower().replace(" ", "-").replace("@", "").replace(".", "-")
    users = f"{site}/{REST_PREFIX}/wp/v2/users"
    shown: dict[str, object] = {
        "id": user.id,
        "name": user.username,
        "url": "",
        "description": "",
        "link": f"{site}/author/{slug}/",
        "slug": slug,
        "avatar_urls": {size: f"{site}/avatar/{slug}?s={size}" for size in _AVATAR_SIZES},
        "_links": {"self": [{"href": f"{users}/{user.id}"}], "collection": [{"href": users}]},
    }
    if context != "embed":
        shown["meta"] = []
    return shown | _for_editing(user) if context == "edit" else shown


def _for_editing(user: SiteUser) -> dict[str, object]:
    role = dict.fromkeys(user.roles, True)
    return {
        "username": user.username,
        "email": user.email,
        "first_name": "",
        "last_name": "",
        "nickname": user.username,
        "locale": "en_US",
        "registered_date": datetime.fromtimestamp(user.registered_at, UTC).isoformat(),
        "roles": list(user.roles),
        "capabilities": {"read": True, "level_0": True, **role},
        "extra_capabilities": role,
    }

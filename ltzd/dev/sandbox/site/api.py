"""The part of WordPress's REST API that ltzd and an attacker use.

A log-in cookie needs a nonce of its session: without a nonce the request is anonymous, and with a
wrong nonce it is refused. An application password needs no nonce. As in WordPress core, a user can
change the e-mail address of the account without confirmation. The site then reports the new address
as unconfirmed, unless it plays a site without ltzd's plugin.
"""

import base64
import binascii
from datetime import UTC, datetime

from aiohttp import web

from ltzd.dev.sandbox.requests import BadInputError, email_in, json_object, json_reply
from ltzd.dev.sandbox.site import errors as site_errors
from ltzd.dev.sandbox.site.sessions import SiteSessions
from ltzd.dev.sandbox.site.users import HostSiteUser, SiteUsers, is_password_of

PREFIX = "/site"
REST_PREFIX = "wp-json"
NONCE = "X-WP-Nonce"

CONFIRMED_FIELD = "ltzd_email_confirmed"

_CONTEXTS = ("view", "embed", "edit")
_AVATAR_SIZES = ("24", "48", "96")


class SiteApi:
    def __init__(self, users: SiteUsers, sessions: SiteSessions) -> None:
        self._users = users
        self._sessions = sessions

    def routes(self) -> list[web.RouteDef]:
        rest = f"{PREFIX}/{REST_PREFIX}"
        users = f"{rest}/wp/v2/users"
        return [
            web.get(f"{users}/me", self._me),
            *(
                web.route(method, f"{users}/{target}", self._change)
                for method in ("POST", "PUT", "PATCH")
                for target in ("me", "{id:[0-9]+}")
            ),
            web.route("*", f"{rest}/{{path:.*}}", self._no_route),
        ]

    async def _no_route(self, _request: web.Request) -> web.Response:
        return site_errors.no_route()

    async def _me(self, request: web.Request) -> web.Response:
        user, nonce = self._log_in(request)
        if isinstance(user, web.Response):
            return user
        return _with_nonce(_user_reply(request, user), nonce)

    async def _change(self, request: web.Request) -> web.Response:
        """POST {"email"}: changes the address at once; ignores all other fields."""
        user, nonce = self._log_in(request)
        if isinstance(user, web.Response):
            return user
        if user is None:
            return site_errors.not_logged_in()
        if request.match_info.get("id", str(user.id)) != str(user.id):
            return site_errors.cannot_edit()
        return _with_nonce(await self._changed(request, user), nonce)

    async def _changed(self, request: web.Request, user: HostSiteUser) -> web.Response:
        try:
            body = await json_object(request) if request.can_read_body else {}
            email = email_in(body, "email") if "email" in body else user.email
        except BadInputError as error:
            is_email = error.field == "email"
            return site_errors.bad_email(str(error)) if is_email else site_errors.bad_json()
        changed = await self._users.change_email(user, email)
        if changed is None:
            return site_errors.taken_email()
        return json_reply(user_as_json(changed, _site_of(request), "edit"))

    def _log_in(
        self, request: web.Request
    ) -> tuple[HostSiteUser | web.Response | None, str | None]:
        """Return the user or the refusal, and for a cookie log-in a fresh nonce."""
        session = self._sessions.session_in(request.cookies)
        login = None if session.user is not None else _password_login(request)
        if login is not None:
            return self._by_password(*login), None
        nonce = request.query.get("_wpnonce", request.headers.get(NONCE))
        if nonce is None:
            return None, None
        if not self._sessions.is_nonce(nonce, session):
            return site_errors.bad_nonce(), None
        return session.user, self._sessions.nonce(session)

    def _by_password(self, login: str, password: str) -> HostSiteUser | web.Response:
        is_email = "@" in login
        user = self._users.by_username(login) or (self._users.by_email(login) if is_email else None)
        if user is None:
            return site_errors.bad_login("invalid_email" if is_email else "invalid_username")
        if not is_password_of(user, password):
            return site_errors.bad_login("incorrect_password")
        return user


def _with_nonce(reply: web.Response, nonce: str | None) -> web.Response:
    if nonce is not None:
        reply.headers[NONCE] = nonce
    return reply


def _site_of(request: web.Request) -> str:
    return str(request.url.origin()) + PREFIX


def _password_login(request: web.Request) -> tuple[str, str] | None:
    """Return name and password of a Basic header; ignores any other header."""
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    try:
        pair = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    login, colon, password = pair.partition(":")
    return (login, password) if scheme.lower() == "basic" and colon else None


def _user_reply(request: web.Request, user: HostSiteUser | None) -> web.Response:
    context = request.query.get("context", "view")
    if context not in _CONTEXTS:
        return site_errors.bad_context(_CONTEXTS)
    if user is None:
        return site_errors.not_logged_in()
    return json_reply(user_as_json(user, _site_of(request), context))


def user_as_json(user: HostSiteUser, site: str, context: str) -> dict[str, object]:
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


def _for_editing(user: HostSiteUser) -> dict[str, object]:
    role = dict.fromkeys(user.roles, True)
    confirmation = {} if user.email_confirmed is None else {CONFIRMED_FIELD: user.email_confirmed}
    return confirmation | {
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

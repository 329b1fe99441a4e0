"""Log-in cookies and nonces of the host site.

Both are signed with the site's secret and not stored, so they stay valid after a restart. A nonce
is bound to its user and session; it is valid in the half day of its creation and in the next.
"""

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote_plus, unquote_plus

import msgspec

from ltzd.dev.sandbox.site.users import HostSiteUser, SiteUsers

_SESSION_SECONDS = 2 * 86_400
_TICK_SECONDS = 43_200
_NO_SESSION = ""


class SiteSession(msgspec.Struct, frozen=True):
    """`user` is None without a log-in; such a session has nonces too."""

    user: HostSiteUser | None = None
    token: str = _NO_SESSION


class SiteSessions:
    def __init__(
        self, secret: bytes, users: SiteUsers, clock: Callable[[], float] = time.time
    ) -> None:
        self._secret = secret
        self._users = users
        self._clock = clock
        self.cookie_name = f"wordpress_logged_in_{self._signature('the site')[:32]}"

    def open(self, user: HostSiteUser) -> SiteSession:
        return SiteSession(user, secrets.token_urlsafe(32))

    def cookies(self, session: SiteSession) -> dict[str, str]:
        """The platform's cookies by name; the log-in cookie is empty without a user."""
        value = "" if session.user is None else self._login(session.user, session.token)
        return {"wordpress_test_cookie": "WP%20Cookie%20check", self.cookie_name: value}

    def cookie_header(self, session: SiteSession) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies(session).items())

    def _login(self, user: HostSiteUser, token: str) -> str:
        expires = int(self._clock()) + _SESSION_SECONDS
        signed = f"{user.username}|{expires}|{token}"
        return quote_plus(f"{signed}|{self._signature(signed)}")

    def session_in(self, cookies: Mapping[str, str]) -> SiteSession:
        parts = unquote_plus(cookies.get(self.cookie_name, "")).split("|")
        if len(parts) != 4:
            return SiteSession()
        username, expires, token, signature = parts
        is_authentic = _is_same(signature, self._signature(f"{username}|{expires}|{token}"))
        if not is_authentic or int(expires) <= self._clock():
            return SiteSession()
        return SiteSession(self._users.by_username(username), token)

    def nonce(self, session: SiteSession) -> str:
        return self._nonce_at(session, self._tick())

    def is_nonce(self, given: str, session: SiteSession) -> bool:
        tick = self._tick()
        return any(_is_same(given, self._nonce_at(session, each)) for each in (tick, tick - 1))

    def _tick(self) -> int:
        return math.ceil(self._clock() / _TICK_SECONDS)

    def _nonce_at(self, session: SiteSession, tick: int) -> str:
        user_id = session.user.id if session.user is not None else 0
        return self._signature(f"{tick}|wp_rest|{user_id}|{session.token}")[-12:-2]

    def _signature(self, text: str) -> str:
        return hmac.new(self._secret, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _is_same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())

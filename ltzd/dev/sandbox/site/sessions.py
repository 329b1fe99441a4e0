"""Log-ins at the host site: the cookie that carries one, and the nonces that belong to it.

Both are signed with the site's own secret and nothing else is kept of them, so they are good after
a restart as well. A nonce is bound to its user and session and counts in the half day in which it
was made and in the next.
"""

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote_plus, unquote_plus

from ltzd.dev.sandbox.site.users import HostSiteUser, SiteUsers

_SESSION_SECONDS = 2 * 86_400
_TICK_SECONDS = 43_200
_NO_SESSION = ""


@dataclass(frozen=True, slots=True)
class SiteSession:
    """`user` is None for whoever is not logged in; nonces of that exist, too."""

    user: HostSiteUser | None = None
    token: str = _NO_SESSION


class SiteSessions:
    def __init__(
        self, secret: bytes, users: SiteUsers, clock: Callable[[], float] = time.time
    ) -> None:
        self._secret = secret
        self._users = users
        self._clock = clock
        self.cookie_name = f"wordpress_logged_in_{self._signed('the site')[:32]}"

    def open(self, user: HostSiteUser) -> SiteSession:
        return SiteSession(user, secrets.token_urlsafe(32))

    def cookies(self, session: SiteSession) -> dict[str, str]:
        """By name, with what else the host platform sets; no log-in for whoever is nobody."""
        value = "" if session.user is None else self._login(session.user, session.token)
        return {"wordpress_test_cookie": "WP%20Cookie%20check", self.cookie_name: value}

    def cookie_header(self, session: SiteSession) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies(session).items())

    def _login(self, user: HostSiteUser, token: str) -> str:
        expires = int(self._clock()) + _SESSION_SECONDS
        said = f"{user.username}|{expires}|{token}"
        return quote_plus(f"{said}|{self._signed(said)}")

    def session_in(self, cookies: Mapping[str, str]) -> SiteSession:
        parts = unquote_plus(cookies.get(self.cookie_name, "")).split("|")
        if len(parts) != 4:
            return SiteSession()
        username, expires, token, signature = parts
        is_ours = _is_same(signature, self._signed(f"{username}|{expires}|{token}"))
        if not is_ours or int(expires) <= self._clock():
            return SiteSession()
        return SiteSession(self._users.by_username(username), token)

    def nonce(self, session: SiteSession) -> str:
        return self._nonce_at(session, self._tick())

    def is_nonce(self, given: str, session: SiteSession) -> bool:
        tick = self._tick()
        return any(_is_same(given, self._nonce_at(session, one)) for one in (tick, tick - 1))

    def _tick(self) -> int:
        return math.ceil(self._clock() / _TICK_SECONDS)

    def _nonce_at(self, session: SiteSession, tick: int) -> str:
        user_id = session.user.id if session.user is not None else 0
        return self._signed(f"{tick}|wp_rest|{user_id}|{session.token}")[-12:-2]

    def _signed(self, text: str) -> str:
        return hmac.new(self._secret, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _is_same(given: str, ours: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), ours.encode())

"""The one client of the sites whose members ltzd serves: looks up the member of a log-in.

Uses WordPress's REST API. Only the headers that prove a log-in are forwarded: the platform's own
cookies with their nonce, or the Basic header of an application password. They go to the configured
origin only, and through the guard, since a customer has named it. The answer for a valid log-in is
cached for less than a minute, under a hash of the headers; a refusal is never cached.
"""

import base64
import hashlib
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ltzd import telemetry
from ltzd.concurrency.clock import Clock
from ltzd.concurrency.shared_cache import SharedCache
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.errors import HostSiteBusy, HostSiteRefused, HostSiteUnavailable, LoginRateLimited
from ltzd.providers.outbound.guarded_connector import HostResolver
from ltzd.providers.outbound.guarded_http import GuardedHttpClient, GuardPolicy
from ltzd.providers.outbound.http_client import AsyncCloseable, HttpResponse, RequestFailed
from ltzd.providers.outbound.json_bodies import InvalidJsonError, decode_json

CACHE_SECONDS = 55.0
"""With the five seconds that a site may take to answer, a log-out counts within a minute."""
RECENTLY_VALID_SECONDS = 3_600.0
"""How long a log-in is remembered as valid, after the cached answer has ended."""
MAX_CACHED = 10_000
_MAX_ROLES = 100
_MAX_TEXT = 2_000
"""Characters of a member's name, address and roles together. All members of all brands' sites share
the cache: with the longest texts that an answer can hold, it would take 2.5 GB."""
_ACCEPT = {"Accept": "application/json"}
_MAX_COOKIES_LENGTH = 4096
LOGIN_COOKIES = ("wordpress_logged_in_", "wordpress_sec_")
"""Prefixes of the platform's log-in cookies."""
EMAIL_CONFIRMED_FIELD = "ltzd_email_confirmed"
"""A field of our own in a site's `users/me` (docs/site.md, The member's wallet)."""
_COOKIE = re.compile(r"[!-:<-~]+")
_NONCE = re.compile(r"[0-9A-Za-z]{1,64}")
_BASIC = re.compile(r"(?i:basic) +([A-Za-z0-9+/]{1,1024}={0,2})")

MAX_FORMS = 20
"""Forms in which one nonce or password may log in at a site within a minute."""
MAX_WAITING = 50
"""Requests that wait for one host's site at the same time (docs/operations.md, Limits)."""


def guard_policy(*, allow_loopback: bool = False) -> GuardPolicy:
    return GuardPolicy(
        allow_loopback=allow_loopback,
        max_per_host=MAX_WAITING,
        max_waiting=MAX_WAITING,
    )


@dataclass(frozen=True, slots=True)
class HostCredentials:
    """A request's headers as they came: Cookie, X-WP-Nonce, Authorization."""

    cookie: str | None = field(default=None, repr=False)
    nonce: str | None = field(default=None, repr=False)
    authorization: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SiteUser:
    """`id` is the site's own. `nonce` is a fresh one for the same log-in, to be passed back.

    `email_confirmed` is the site's word that the address's owner has confirmed it; None if the site
    sends no such field.
    """

    id: int
    username: str
    email: str | None = field(repr=False)
    roles: tuple[str, ...] = ()
    nonce: str | None = field(default=None, repr=False)
    email_confirmed: bool | None = None


class HostSiteClient(AsyncCloseable):
    """`resolve` replaces the machine's resolver; `clock` measures how old an answer is."""

    def __init__(
        self,
        policy: GuardPolicy,
        resolve: HostResolver | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._http = GuardedHttpClient(policy, resolve)
        # A site may accept any number of log-ins: its own are pushed out, not another site's.
        self._users: SharedCache[SiteUser] = SharedCache(MAX_CACHED, CACHE_SECONDS, clock)
        self._recently_valid: SharedCache[bool] = SharedCache(
            MAX_CACHED, RECENTLY_VALID_SECONDS, clock
        )
        self._forms: SharedCache[set[bytes]] = SharedCache(MAX_CACHED, 60.0, clock)
        # Unbounded here: `_slot_at` bounds the requests of each site.
        self._requests: SingleFlight[bytes, SiteUser | None] = SingleFlight(
            "host site", sys.maxsize, HostSiteUnavailable
        )
        self._waiting: Counter[str] = Counter()

    async def close(self) -> None:
        """End requests in flight; their callers get HostSiteUnavailable."""
        await self._requests.close()
        await self._http.close()

    async def user_of(
        self, origin: str, credentials: HostCredentials, rest_prefix: str = "wp-json"
    ) -> SiteUser | None:
        """Return the member of the log-in, or None if the site refuses the log-in.

        `origin` may have a path, if the site lies in one. Callers with the same log-in share one
        request. Raises HostSiteUnavailable, HostSiteBusy while too many callers wait for this site,
        and LoginRateLimited for a valid nonce or password that comes in too many forms.
        """
        headers = login_headers(credentials)
        if headers is None:
            return None
        url = users_me_url(origin, rest_prefix)
        key = _cache_key(url, headers)
        user = self._users.get(origin, key)
        if user is not None:
            return user
        with self._slot_at(origin):
            return await self._requests.call(key, lambda: self._request(origin, key, url, headers))

    def was_recently_valid(
        self, origin: str, credentials: HostCredentials, rest_prefix: str = "wp-json"
    ) -> bool:
        """Return whether the site has accepted this log-in within the hour and not refused it
        since. The log-in may have ended: `user_of` checks that."""
        headers = login_headers(credentials)
        if headers is None:
            return False
        key = _cache_key(users_me_url(origin, rest_prefix), headers)
        return self._recently_valid.get(origin, key) is not None

    async def ask_without_log_in(self, origin: str, rest_prefix: str = "wp-json") -> HttpResponse:
        """Ask for the member of no log-in, which a site refuses with 401 and its platform's code.

        Raises HostSiteUnavailable without an answer.
        """
        url = users_me_url(origin, rest_prefix)
        try:
            return await self._http.request("GET", url, headers=_ACCEPT)
        except RequestFailed as error:
            raise _unavailable(url, error.reason) from error

    @contextmanager
    def _slot_at(self, origin: str) -> Iterator[None]:
        if self._waiting[origin] >= MAX_WAITING:
            raise HostSiteBusy("Too many requests wait for the host site")
        self._waiting[origin] += 1
        try:
            yield
        finally:
            self._waiting[origin] -= 1
            if not self._waiting[origin]:
                del self._waiting[origin]

    def _limit_forms(self, origin: str, proof: bytes) -> None:
        """Raises LoginRateLimited.

        A member can write one log-in in many forms, with cookies that the platform ignores or with
        spaces in a password. Each form costs a request and takes the place of another member's.
        """
        if len(self._forms.get(origin, proof) or ()) >= MAX_FORMS:
            raise LoginRateLimited(
                "This log-in came in too many forms. Please try again in a minute.",
                limit=MAX_FORMS,
                retryAfterSeconds=60,
            )

    async def _request(
        self, origin: str, key: bytes, url: str, headers: Mapping[str, str]
    ) -> SiteUser | None:
        proof = _cache_key(url, _proof_in(headers))
        self._limit_forms(origin, proof)
        with telemetry.timed_provider("host_site"):
            try:
                response = await self._http.request("GET", url, headers=headers)
            except RequestFailed as error:
                raise _unavailable(url, error.reason) from error
            user = _user_in(url, response)
        if user is None:
            self._recently_valid.remove(origin, key)
        else:
            self._users.put(origin, key, user)
            self._recently_valid.put(origin, key, True)
            self._count_form(origin, proof, key)
        return user

    def _count_form(self, origin: str, proof: bytes, key: bytes) -> None:
        forms = self._forms.get(origin, proof)
        if forms is None:
            forms = set()
            self._forms.put(origin, proof, forms)
        forms.add(key)


def login_headers(credentials: HostCredentials) -> Mapping[str, str] | None:
    """Return the headers that are forwarded to a site, or None without any proof of a log-in.

    The platform ignores a cookie without its nonce, and prefers a cookie to a password.
    """
    cookies = "; ".join(_login_cookies(credentials.cookie or ""))
    nonce = _NONCE.fullmatch(credentials.nonce or "")
    if cookies and nonce and len(cookies) <= _MAX_COOKIES_LENGTH:
        return {**_ACCEPT, "Cookie": cookies, "X-WP-Nonce": nonce[0]}
    basic = _BASIC.fullmatch(credentials.authorization or "")
    return {**_ACCEPT, "Authorization": f"Basic {basic[1]}"} if basic else None


def _login_cookies(header: str) -> Iterator[str]:
    for pair in header.split(";"):
        cookie = pair.strip(" ")
        if cookie.startswith(LOGIN_COOKIES) and "=" in cookie and _COOKIE.fullmatch(cookie):
            yield cookie


def _proof_in(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the part of a log-in's headers that has one form only: the nonce, which is one
    session's, or the application password without its spaces, which the platform ignores."""
    if "X-WP-Nonce" in headers:
        return {"X-WP-Nonce": headers["X-WP-Nonce"]}
    encoded = headers["Authorization"].partition(" ")[2]
    try:
        _, _, password = base64.b64decode(encoded).partition(b":")
    except ValueError:
        return headers
    return {"Authorization": hashlib.sha256(password.replace(b" ", b"")).hexdigest()}


def users_me_url(origin: str, rest_prefix: str) -> str:
    """The URL that is asked for the member of a log-in; it holds nothing of the log-in."""
    return f"{origin.rstrip('/')}/{rest_prefix}/wp/v2/users/me?context=edit"


def _cache_key(url: str, headers: Mapping[str, str]) -> bytes:
    parts = "\n".join((url, *(f"{name}: {value}" for name, value in headers.items())))
    return hashlib.sha256(parts.encode()).digest()


def _user_in(url: str, response: HttpResponse) -> SiteUser | None:
    if response.status in {401, 403}:
        return None
    if 400 <= response.status < 500:
        reason = f"status {response.status}"
        raise HostSiteRefused(_no_answer(url, reason), reason=reason)
    if response.status != 200:
        raise _unavailable(url, f"status {response.status}")
    try:
        user = decode_json(response.body)
    except InvalidJsonError as error:
        raise _unavailable(url, "the body is not JSON") from error
    if not isinstance(user, dict):
        raise _unavailable(url, "the body is no user")
    return _parse_user(url, user, response.headers.get("X-WP-Nonce"))


def _parse_user(url: str, user: Mapping[str, object], nonce: str | None) -> SiteUser:
    user_id, username, email = user.get("id"), user.get("username"), user.get("email")
    roles = user.get("roles", [])
    if not isinstance(user_id, int) or isinstance(user_id, bool) or user_id < 1:
        raise _unavailable(url, "the user has no id")
    if not isinstance(username, str) or not username:
        raise _unavailable(url, "the user has no name")
    if not isinstance(email, str) or not isinstance(roles, list) or len(roles) > _MAX_ROLES:
        raise _unavailable(url, "the user's fields are incomplete")
    fresh_nonce = nonce if nonce is not None and _NONCE.fullmatch(nonce) else None
    role_names = tuple(role for role in roles if isinstance(role, str))
    if sum(map(len, (username, email, *role_names))) > _MAX_TEXT:
        raise _unavailable(url, "the user's fields are too long")
    return SiteUser(
        user_id, username, email or None, role_names, fresh_nonce, _email_confirmed_in(user)
    )


def _email_confirmed_in(user: Mapping[str, object]) -> bool | None:
    """A value other than `true` confirms nothing: a site that answers wrongly must not be read as
    one that does not answer."""
    confirmed = user.get(EMAIL_CONFIRMED_FIELD)
    return confirmed if confirmed is None else confirmed is True


def _unavailable(url: str, reason: str) -> HostSiteUnavailable:
    return HostSiteUnavailable(_no_answer(url, reason), reason=reason)


def _no_answer(url: str, reason: str) -> str:
    return f"The host site gave no usable answer at {url}: {reason}"

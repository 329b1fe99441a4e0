"""The one client of the sites whose users ltzd serves: whose log-in is this?

Speaks WordPress's REST API. Nothing is sent on but what proves a log-in: the platform's own cookies
with their nonce, or the Basic header of an application password; to the configured origin only, and
through the guard, since a customer has named it. For a log-in that counts, the answer is kept for
less than a minute, under a hash of what was sent; that one does not count is never kept.
"""

import asyncio
import base64
import hashlib
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from cachetools import TTLCache

from ltzd import telemetry
from ltzd.concurrency.clock import Clock
from ltzd.errors import HostSiteBusy, HostSiteRefused, HostSiteUnavailable, LoginRateLimited
from ltzd.providers.outbound.bounded_json import InvalidJsonError, decode_json
from ltzd.providers.outbound.guarded_connector import HostResolver
from ltzd.providers.outbound.guarded_http import (
    Answer,
    GuardedHttpClient,
    GuardPolicy,
    RequestFailed,
)

KEPT_SECONDS = 55.0
"""And the five that a site may take to answer: a log-out counts within a minute."""
CONFIRMED_SECONDS = 3_600.0
"""How long a log-in that was good is told from those that never were."""
MOST_KEPT = 10_000
_MOST_ROLES = 100
_LONGEST_COOKIES = 4096
LOGIN_COOKIES = ("wordpress_logged_in_", "wordpress_sec_")
"""How the platform's own begin."""
CONFIRMED = "ltzd_email_confirmed"
"""A field of our own in a site's `users/me` (choices.md, Site)."""
_COOKIE = re.compile(r"[!-:<-~]+")
_NONCE = re.compile(r"[0-9A-Za-z]{1,64}")
_BASIC = re.compile(r"(?i:basic) +([A-Za-z0-9+/]{1,1024}={0,2})")


MOST_FORMS = 20
"""In which one nonce or password may log in at a site within a minute."""
MOST_WAITING = 50
"""Requests that wait for one host's site (choices.md, Transport and other limits)."""


def guard_policy(*, allow_loopback: bool = False) -> GuardPolicy:
    return GuardPolicy(
        allow_loopback=allow_loopback,
        max_per_host=MOST_WAITING,
        max_waiting=MOST_WAITING,
        look_up_threads=64,
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

    `email_confirmed`: whether the address's owner has confirmed it; None if the site does not say.
    """

    id: int
    username: str
    email: str | None = field(repr=False)
    roles: tuple[str, ...] = ()
    nonce: str | None = field(default=None, repr=False)
    email_confirmed: bool | None = None


class HostSiteClient:
    """`look_up` stands in for the machine's resolver, `clock` tells how old an answer is."""

    def __init__(
        self,
        policy: GuardPolicy,
        look_up: HostResolver | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._http = GuardedHttpClient(policy, look_up)
        self._known: TTLCache[bytes, SiteUser] = TTLCache(MOST_KEPT, KEPT_SECONDS, clock)
        self._confirmed: TTLCache[bytes, None] = TTLCache(MOST_KEPT, CONFIRMED_SECONDS, clock)
        self._forms: TTLCache[bytes, set[bytes]] = TTLCache(MOST_KEPT, 60.0, clock)
        self._asking: dict[bytes, asyncio.Task[SiteUser | None]] = {}
        self._waiting: Counter[str] = Counter()

    async def close(self) -> None:
        for asking in list(self._asking.values()):
            asking.cancel()
            with suppress(asyncio.CancelledError, HostSiteUnavailable):
                await asking
        await self._http.close()

    async def user_of(
        self, origin: str, credentials: HostCredentials, rest_prefix: str = "wp-json"
    ) -> SiteUser | None:
        """None for whoever is not logged in; `origin` may have a path, where the site lies in one.

        Raises HostSiteUnavailable, HostSiteBusy while too many wait for this site, and
        LoginRateLimited for a good nonce or password that comes in too many forms. The same log-in,
        asked about at the same time, is asked once.
        """
        headers = login_headers(credentials)
        if headers is None:
            return None
        url = _url_at(origin, rest_prefix)
        name = _name_of(url, headers)
        known = self._known.get(name)
        if known is not None:
            return known
        with self._place_at(origin):
            if name not in self._asking:
                self._refuse_many_forms(url, headers)
                self._asking[name] = asyncio.create_task(self._ask(name, url, headers))
                self._asking[name].add_done_callback(lambda done: self._asked(name, done))
            return await asyncio.shield(self._asking[name])

    def was_recently_valid(
        self, origin: str, credentials: HostCredentials, rest_prefix: str = "wp-json"
    ) -> bool:
        """Whether the site has confirmed this log-in within the hour and not denied it since.

        It may have ended: only `user_of` tells.
        """
        headers = login_headers(credentials)
        return headers is not None and (
            _name_of(_url_at(origin, rest_prefix), headers) in self._confirmed
        )

    @contextmanager
    def _place_at(self, origin: str) -> Iterator[None]:
        if self._waiting[origin] >= MOST_WAITING:
            raise HostSiteBusy("Too many requests wait for the host site")
        self._waiting[origin] += 1
        try:
            yield
        finally:
            self._waiting[origin] -= 1
            if not self._waiting[origin]:
                del self._waiting[origin]

    def _refuse_many_forms(self, url: str, headers: Mapping[str, str]) -> None:
        """A member can write one log-in in many forms, by cookies that the platform ignores or by
        spaces in a password. Each form is a question to the site, and takes a place of others.
        """
        forms = self._forms.get(_name_of(url, _proof_in(headers)), ())
        if len(forms) >= MOST_FORMS:
            raise LoginRateLimited(
                "This log-in came in too many forms. Please try again in a minute.",
                limit=MOST_FORMS,
                retryAfterSeconds=60,
            )

    def _asked(self, name: bytes, done: asyncio.Task[SiteUser | None]) -> None:
        del self._asking[name]
        # Looked at here, so that a failure nobody waits for any more is not reported as forgotten.
        if not done.cancelled():
            done.exception()

    async def _ask(self, name: bytes, url: str, headers: Mapping[str, str]) -> SiteUser | None:
        with telemetry.timed_provider("host_site"):
            try:
                answer = await self._http.ask("GET", url, headers=headers)
            except RequestFailed as error:
                raise _unavailable(error.reason) from error
            user = _user_in(answer)
        if user is None:
            self._confirmed.pop(name, None)
        else:
            self._known[name] = user
            self._confirmed[name] = None
            self._forms.setdefault(_name_of(url, _proof_in(headers)), set()).add(name)
        return user


def login_headers(credentials: HostCredentials) -> Mapping[str, str] | None:
    """The headers that a site is asked with; None where nothing could prove a log-in.

    The platform takes a cookie without its nonce for a stranger's, and prefers a cookie to a
    password.
    """
    accept = {"Accept": "application/json"}
    cookies = "; ".join(_login_cookies(credentials.cookie or ""))
    nonce = _NONCE.fullmatch(credentials.nonce or "")
    if cookies and nonce and len(cookies) <= _LONGEST_COOKIES:
        return {**accept, "Cookie": cookies, "X-WP-Nonce": nonce[0]}
    basic = _BASIC.fullmatch(credentials.authorization or "")
    return {**accept, "Authorization": f"Basic {basic[1]}"} if basic else None


def _login_cookies(header: str) -> Iterator[str]:
    for pair in header.split(";"):
        cookie = pair.strip(" ")
        if cookie.startswith(LOGIN_COOKIES) and "=" in cookie and _COOKIE.fullmatch(cookie):
            yield cookie


def _proof_in(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The part of a log-in's headers that cannot be written in another way: the nonce, which is one
    session's, or an application password, in which the platform ignores spaces."""
    if "X-WP-Nonce" in headers:
        return {"X-WP-Nonce": headers["X-WP-Nonce"]}
    encoded = headers["Authorization"].partition(" ")[2]
    try:
        _, _, password = base64.b64decode(encoded).partition(b":")
    except ValueError:
        return headers
    return {"Authorization": hashlib.sha256(password.replace(b" ", b"")).hexdigest()}


def _url_at(origin: str, rest_prefix: str) -> str:
    return f"{origin.rstrip('/')}/{rest_prefix}/wp/v2/users/me?context=edit"


def _name_of(url: str, headers: Mapping[str, str]) -> bytes:
    parts = "\n".join((url, *(f"{name}: {value}" for name, value in headers.items())))
    return hashlib.sha256(parts.encode()).digest()


def _user_in(answer: Answer) -> SiteUser | None:
    if answer.status in {401, 403}:
        return None
    if 400 <= answer.status < 500:
        reason = f"status {answer.status}"
        raise HostSiteRefused(f"The host site gave no usable answer: {reason}", reason=reason)
    if answer.status != 200:
        raise _unavailable(f"status {answer.status}")
    try:
        said = decode_json(answer.body)
    except InvalidJsonError as error:
        raise _unavailable("the body is not JSON") from error
    if not isinstance(said, dict):
        raise _unavailable("the body is no user")
    return _user_from(said, answer.headers.get("X-WP-Nonce"))


def _user_from(said: Mapping[str, object], nonce: str | None) -> SiteUser:
    user_id, username, email = said.get("id"), said.get("username"), said.get("email")
    roles = said.get("roles", [])
    if not isinstance(user_id, int) or isinstance(user_id, bool) or user_id < 1:
        raise _unavailable("the user has no id")
    if not isinstance(username, str) or not username:
        raise _unavailable("the user has no name")
    if not isinstance(email, str) or not isinstance(roles, list) or len(roles) > _MOST_ROLES:
        raise _unavailable("the user is not told whole")
    fresh = nonce if nonce is not None and _NONCE.fullmatch(nonce) else None
    own_roles = tuple(role for role in roles if isinstance(role, str))
    return SiteUser(user_id, username, email or None, own_roles, fresh, _confirmed_in(said))


def _confirmed_in(said: Mapping[str, object]) -> bool | None:
    """What is there and not a truth value confirms nothing: a site that means to answer, and
    answers wrongly, must not be read as one that says nothing."""
    confirmed = said.get(CONFIRMED)
    return confirmed if confirmed is None else confirmed is True


def _unavailable(reason: str) -> HostSiteUnavailable:
    return HostSiteUnavailable(f"The host site gave no usable answer: {reason}", reason=reason)

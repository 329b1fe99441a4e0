"""Requests to URLs that customers chose, guarded against forgery of requests into our own network.

This module judges the URL, the time and the size; `guarded_connector` judges the addresses that a
connection may lead to. No redirect is followed, no cookie kept, no proxy used, no body
decompressed, and no connection used twice unless the policy says so.

Raises RequestFailed. Its reason is fit for a log: it holds nothing of the URL, whose query may be
secret.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from weakref import WeakValueDictionary

import msgspec
from yarl import URL

from ltzd import __version__
from ltzd.providers.outbound.guarded_connector import (
    ForbiddenAddressError,
    GuardedConnector,
    HostResolver,
)
from ltzd.providers.outbound.guarded_posts import GuardedPosts
from ltzd.providers.outbound.http_client import (
    AsyncCloseable,
    HttpClient,
    HttpResponse,
    RequestFailed,
)
from ltzd.providers.outbound.name_lookups import NameLookups
from ltzd.providers.outbound.public_addresses import is_public
from ltzd.rules.domains.customer_urls import is_loopback_host
from ltzd.rules.domains.names import url_host

__all__ = ["AddressRefused", "GuardPolicy", "GuardedHttpClient", "HttpResponse", "RequestFailed"]


_HEADERS = {
    "User-Agent": f"ltzd/{__version__}",
    "Accept": "*/*",
    "Accept-Encoding": "identity",
}
_MAX_CHECKED = 1_024
"""The URLs that are remembered as checked."""


class GuardPolicy(msgspec.Struct, frozen=True):
    """`allow_loopback` is for dev mode only: this machine's addresses, under any port, and by http
    if they are called localhost or 127.0.0.1. `timeout_seconds` bounds the whole request: waiting
    for a place among `max_per_host`, DNS, connecting and reading. At most `max_waiting` requests to
    one host are in flight or wait; hosts share no bound, so that a slow host delays only itself.
    `max_lookups` bounds the names that are looked up at once, for the day on which no name can be.
    `keep_open_seconds` keeps connections for that long for a next request."""

    allow_loopback: bool = False
    schemes: frozenset[str] = frozenset({"https"})
    ports: frozenset[int] = frozenset({80, 443})
    timeout_seconds: float = 5.0
    max_body_bytes: int = 64 * 1024
    max_per_host: int = 8
    max_waiting: int = 1_000
    max_lookups: int = 200
    keep_open_seconds: float | None = None


class AddressRefused(RequestFailed):
    """The URL's host is not on the public internet."""


class GuardedHttpClient(AsyncCloseable):
    """`resolve` replaces the machine's resolver."""

    def __init__(self, policy: GuardPolicy, resolve: HostResolver | None = None) -> None:
        self._policy = policy
        self._lookups = NameLookups(policy.max_lookups)
        self._resolve = resolve or self._lookups.addresses_of
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._in_flight: Counter[str] = Counter()
        self._is_allowed = _allowing_loopback if policy.allow_loopback else is_public
        self._checked = lru_cache(_MAX_CHECKED)(self._check)
        self._http = HttpClient(
            max_body_bytes=policy.max_body_bytes,
            headers=_HEADERS,
            make_connector=lambda: GuardedConnector(
                self._resolve, self._is_allowed, max_bytes=2 * policy.max_body_bytes
            ),
            decompress=False,
        )
        self._posts = GuardedPosts(self._resolve, self._is_allowed, policy.keep_open_seconds)

    async def close(self) -> None:
        self._lookups.close()
        self._posts.close()
        await self._http.close()

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Send one request and never repeat it. Returns an answer of any status but a redirect.

        Raises RequestFailed.
        """
        return await self._bounded(
            url, lambda target: self._exchange(method, target, body, headers)
        )

    async def post_for_head(
        self, url: str, *, body: bytes, headers: Mapping[str, str]
    ) -> HttpResponse:
        """Post and return the answer's status and headers, of a redirect as well.

        The body is not read. Raises RequestFailed. A host may close a kept connection in the moment
        in which the request is sent on it: then the request is sent again, on another connection.
        """
        return await self._bounded(
            url, lambda target: self._posts.post(target, body, {**_HEADERS, **headers})
        )

    async def _bounded(
        self, url: str, exchange: Callable[[URL], Awaitable[HttpResponse]]
    ) -> HttpResponse:
        target = self._checked(url)
        host = target.raw_host or ""
        if self._in_flight[host] >= self._policy.max_waiting:
            raise RequestFailed("too many requests are waiting")
        self._in_flight[host] += 1
        try:
            async with asyncio.timeout(self._policy.timeout_seconds), self._slot_of(host):
                return await exchange(target)
        except TimeoutError as error:
            raise RequestFailed("no answer in time") from error
        except RequestFailed as error:
            raise _address_refusal(error) or error from error.__cause__
        finally:
            self._in_flight[host] -= 1
            if not self._in_flight[host]:
                del self._in_flight[host]

    def _check(self, text: str) -> URL:
        """Raises RequestFailed. The text goes over the wire as it is: `encoded` stops yarl from
        changing it."""
        try:
            host, url = url_host(text), URL(text, encoded=True)
        except ValueError as error:
            raise RequestFailed(f"the URL {error}") from error
        if not text.isascii() or (url.raw_host or "").removesuffix(".").lower() != host:
            raise RequestFailed("the URL's host can be read in two ways")
        if self._policy.allow_loopback and is_loopback_host(host):
            return url
        if url.scheme not in self._policy.schemes:
            raise RequestFailed(f"the scheme {url.scheme} is not allowed")
        if url.port not in self._policy.ports:
            raise RequestFailed(f"port {url.port} is not allowed")
        return url

    def _slot_of(self, host: str) -> asyncio.Semaphore:
        # The requests that hold a slot or wait for one keep the semaphore alive.
        slots = self._slots.get(host) or asyncio.Semaphore(self._policy.max_per_host)
        return self._slots.setdefault(host, slots)

    async def _exchange(
        self, method: str, url: URL, body: bytes | None, headers: Mapping[str, str] | None
    ) -> HttpResponse:
        async with self._http.stream(method, url, data=body, headers=headers) as response:
            if 300 <= response.status < 400:
                raise RequestFailed(f"status {response.status}: redirects are not followed")
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise RequestFailed(
                    "the body is compressed, although the request allows no compression"
                )
            body_read = await self._http.read_body(response)
            return HttpResponse(response.status, response.headers, body_read)


def _allowing_loopback(address: str) -> bool:
    return is_public(address) or is_loopback_host(address)


def _address_refusal(failure: RequestFailed) -> AddressRefused | None:
    """The connector's refusal, if that is what the request failed with."""
    cause = failure.__cause__
    while cause is not None:
        if isinstance(cause, ForbiddenAddressError):
            return AddressRefused(str(cause))
        cause = cause.__cause__
    return None

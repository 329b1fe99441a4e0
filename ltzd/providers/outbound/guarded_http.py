"""Requests to URLs that customers chose, guarded against forgery of requests into our own network.

Which addresses a connection may lead to is `guarded_connector`'s part; here stand the URL, the time
and the size. No redirect is followed, no cookie kept, no proxy used, no body unpacked, and no
connection used twice.

Raises RequestFailed. Its reason is fit for a log: it holds nothing of the URL, whose query may be
secret.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import aiohttp
from yarl import URL

from ltzd import __version__
from ltzd.errors import Unavailable
from ltzd.providers.outbound.guarded_connector import (
    ForbiddenAddressError,
    GuardedConnector,
    HostResolver,
)
from ltzd.providers.outbound.public_addresses import is_public
from ltzd.rules.domains.customer_urls import is_loopback_host
from ltzd.rules.domains.names import url_host

_READ_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class GuardPolicy:
    """`allow_loopback` is for dev mode only: this machine's addresses, under any port, and by http
    if they are called localhost or 127.0.0.1. `timeout_seconds` bounds all of a request: waiting
    for a place among `max_per_host`, DNS, connecting and reading. Of one host's requests at most
    `max_waiting` are under way or wait; no bound is shared by hosts, so that a slow one holds up
    itself alone."""

    allow_loopback: bool = False
    schemes: frozenset[str] = frozenset({"https"})
    ports: frozenset[int] = frozenset({80, 443})
    timeout_seconds: float = 5.0
    largest_body_bytes: int = 64 * 1024
    max_per_host: int = 8
    max_waiting: int = 1_000
    look_up_threads: int = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """Of any status but a redirect, if it was asked for. `content_type` is in lower case, without
    parameters; `retry_after` the header as it came; `headers` are there if a body was read."""

    status: int
    content_type: str
    body: bytes
    retry_after: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)


class RequestFailed(Unavailable):
    def __init__(self, reason: str) -> None:
        super().__init__("The request to an outside service failed", reason=reason)
        self.reason = reason


class AddressRefused(RequestFailed):
    """The URL's host is not on the public internet."""


class GuardedHttpClient:
    """`look_up` stands in for the machine's resolver."""

    def __init__(self, policy: GuardPolicy, look_up: HostResolver | None = None) -> None:
        self._policy = policy
        self._threads = ThreadPoolExecutor(policy.look_up_threads, "guarded look-up")
        self._look_up = look_up or self._ask_the_system
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._under_way: Counter[str] = Counter()
        self._looking_up: dict[str, asyncio.Task[list[str]]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        for looking_up in list(self._looking_up.values()):
            looking_up.cancel()
        if self._session is not None:
            await self._session.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def ask(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request, never repeated."""
        return await self._bounded(url, lambda to: self._exchange(method, to, body, headers or {}))

    async def tell(self, url: str, *, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Post once; only the head of the answer is read, a redirect's too."""
        return await self._bounded(url, lambda to: self._head_of_answer(to, body, headers))

    async def _bounded(self, url: str, exchange: Callable[[URL], Awaitable[Answer]]) -> Answer:
        target = self._checked(url)
        host = target.raw_host or ""
        if self._under_way[host] >= self._policy.max_waiting:
            raise RequestFailed("too many requests are waiting")
        self._under_way[host] += 1
        try:
            async with asyncio.timeout(self._policy.timeout_seconds), self._place_at(target):
                return await exchange(target)
        except TimeoutError as error:
            raise RequestFailed("no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _failure_of(error) from error
        finally:
            self._under_way[host] -= 1
            if not self._under_way[host]:
                del self._under_way[host]

    def _checked(self, text: str) -> URL:
        """What goes over the wire is the text as it is: `encoded` keeps yarl from improving it."""
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

    def _place_at(self, url: URL) -> asyncio.Semaphore:
        # Whoever holds a place or waits for one keeps the semaphore alive.
        host = url.raw_host or ""
        places = self._places.get(host) or asyncio.Semaphore(self._policy.max_per_host)
        return self._places.setdefault(host, places)

    async def _exchange(
        self, method: str, url: URL, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        async with self._opened().request(
            method, url, data=body, headers=headers, allow_redirects=False
        ) as response:
            if 300 <= response.status < 400:
                raise RequestFailed(f"status {response.status}: redirects are not followed")
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise RequestFailed("the body is compressed, though we asked for a plain one")
            kind = response.content_type.lower()
            body_read = await self._body_of(response)
            return Answer(response.status, kind, body_read, headers=response.headers)

    async def _head_of_answer(self, url: URL, body: bytes, headers: Mapping[str, str]) -> Answer:
        async with self._opened().post(
            url, data=body, headers=headers, allow_redirects=False
        ) as response:
            kind, patience = response.content_type.lower(), response.headers.get("Retry-After")
            return Answer(response.status, kind, b"", patience)

    async def _body_of(self, response: aiohttp.ClientResponse) -> bytes:
        most = self._policy.largest_body_bytes
        body = bytearray()
        if (response.content_length or 0) <= most:
            async for chunk in response.content.iter_chunked(_READ_BYTES):
                body += chunk
                if len(body) > most:
                    break
            else:
                return bytes(body)
        raise RequestFailed(f"the body is longer than {most} bytes")

    def _opened(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise RequestFailed("the client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=GuardedConnector(self._look_up, self._is_allowed),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                headers={"User-Agent": f"ltzd/{__version__}", "Accept-Encoding": "identity"},
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    def _is_allowed(self, address: str) -> bool:
        return is_public(address) or (self._policy.allow_loopback and is_loopback_host(address))

    async def _ask_the_system(self, host: str) -> list[str]:
        """One look-up of a name at a time: one slow name occupies one thread, however often it is
        asked for, and also after its callers have given up."""
        if host not in self._looking_up:
            self._looking_up[host] = asyncio.create_task(self._resolved(host))
            self._looking_up[host].add_done_callback(lambda done: self._looked_up(host, done))
        return await asyncio.shield(self._looking_up[host])

    async def _resolved(self, host: str) -> list[str]:
        # In threads of its own: slow names must not hold up the rest of the program.
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        )
        return [str(address[0]) for *_, address in found]

    def _looked_up(self, host: str, done: asyncio.Task[list[str]]) -> None:
        del self._looking_up[host]
        # Looked at here, so that a failure nobody waits for any more is not reported as forgotten.
        if not done.cancelled():
            done.exception()


def _failure_of(error: Exception) -> RequestFailed:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ForbiddenAddressError):
            return AddressRefused(str(cause))
        cause = cause.__cause__
    return RequestFailed(type(error).__name__)

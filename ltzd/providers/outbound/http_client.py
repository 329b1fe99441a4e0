"""The HTTP client under every provider that the settings name.

The client bounds the bytes of an answer, interim answers included, and the time of a request. It
follows no redirect, keeps no cookie and uses no proxy. Repeats (`retries`) and a bound on waiting
requests are for the provider's own client to add: only that knows which answers are worth a repeat.

Every failure is a RequestFailed. Its reason is fit for a log: it holds nothing of the URL, whose
path or query may hold a name or a secret, and nothing of the bodies.
"""

import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from ltzd.concurrency.bounded_connector import BoundedConnector
from ltzd.errors import Unavailable
from ltzd.providers.outbound.json_bodies import InvalidJsonError, decode_json

_READ_BYTES = 1 << 14
_FRAMING = 2
"""The bytes of an answer for each byte of its body, at most: chunks have sizes and extensions."""


class RequestFailed(Unavailable):
    """No usable answer came; `reason` is fit for a log."""

    def __init__(self, reason: str) -> None:
        super().__init__("The request to an outside service failed", reason=reason)
        self.reason = reason


class MalformedAnswerError(Exception):
    """An answer came, but it is not of the kind that the request asks for."""


class ClientClosed(RequestFailed):
    """The program is stopping: a repeat would fail as well."""

    def __init__(self) -> None:
        super().__init__("the client is closed")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer of any status, read whole. `headers` are found in any letter case."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def is_success(self) -> bool:
        return self.status in {200, 201}

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in {408, 409, 429} or self.status >= 500

    @property
    def content_type(self) -> str:
        """In lower case, without parameters; empty if the header is missing."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def retry_after(self) -> str | None:
        """The header as it came."""
        return self.headers.get("Retry-After")

    def json_object(self) -> dict[str, object] | None:
        """Return the body if it is a JSON object, else None."""
        try:
            value = decode_json(self.body)
        except InvalidJsonError:
            return None
        return value if isinstance(value, dict) else None


def object_in(response: HttpResponse) -> dict[str, object]:
    """Raises MalformedAnswerError for a body that is no JSON object."""
    body = response.json_object()
    if body is None:
        raise MalformedAnswerError("the answer is no JSON object")
    return body


class AsyncCloseable(ABC):
    """A client that is closed at the end of its `async with` block."""

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class HttpClient(AsyncCloseable):
    """Opens its connections at the first request, so that it may be made outside an event loop.

    `headers` go out with every request; `tls` replaces this machine's certificate authorities, and
    `make_connector` the whole connector. With `decompress=False` a compressed body is returned as
    it came.
    """

    def __init__(
        self,
        *,
        max_body_bytes: int,
        max_connections: int = 100,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        make_connector: Callable[[], aiohttp.BaseConnector] | None = None,
        decompress: bool = True,
    ) -> None:
        self._max_body_bytes = max_body_bytes
        self._headers = headers
        self._make_connector = make_connector or (
            lambda: BoundedConnector(
                _FRAMING * max_body_bytes,
                tls=True if tls is None else tls,
                limit=max_connections,
            )
        )
        self._decompress = decompress
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def close(self) -> None:
        """Fail requests in flight; every later one raises ClientClosed."""
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        url: str | URL,
        *,
        data: bytes | Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> HttpResponse:
        """Send one request and read its whole answer, of any status. Raises RequestFailed.

        `data` is a body, or the fields of a form. A caller that gives no `timeout_seconds` bounds
        the time itself.
        """
        async with self.stream(
            method, url, data=data, headers=headers, timeout_seconds=timeout_seconds
        ) as response:
            return HttpResponse(response.status, response.headers, await self.read_body(response))

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str | URL,
        *,
        data: bytes | Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Give the answer before its body is read. Raises RequestFailed, in the block as well."""
        try:
            async with self._opened_session().request(
                method,
                url,
                data=data,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout_seconds),
                allow_redirects=False,
            ) as response:
                yield response
        except TimeoutError as error:
            raise RequestFailed("no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise RequestFailed(type(error).__name__) from error

    async def read_body(self, response: aiohttp.ClientResponse) -> bytes:
        """Raises RequestFailed for a body that is longer than `max_body_bytes`."""
        body = bytearray()
        if (response.content_length or 0) <= self._max_body_bytes:
            async for chunk in response.content.iter_chunked(_READ_BYTES):
                body += chunk
                if len(body) > self._max_body_bytes:
                    break
            else:
                return bytes(body)
        raise RequestFailed(f"the body is longer than {self._max_body_bytes} bytes")

    def _opened_session(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise ClientClosed
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._make_connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                auto_decompress=self._decompress,
                trust_env=False,
            )
        return self._session

"""Refuses a request on its bytes, where the gate would refuse it anyway.

The application spends several times as much on a request that it refuses: a task's turn, a request
object, routing, an exception. Under a flood that is most of the work. Here the head is split once,
and the answer is taken from a cache. A request that is not whole, or unusual in its form, takes the
ordinary way, as does every request while nothing waits.
"""

import itertools
import re
import secrets
import time
from collections.abc import Callable
from typing import Any

from cachetools import LRUCache
from sanic.headers import format_http1_response

from ltzd import telemetry
from ltzd.errors import LtzdError
from ltzd.http.admission.askers import BODY_BYTES, Askers
from ltzd.http.admission.gate import AdmissionGate
from ltzd.http.responses import Reply
from ltzd.rules.admission import Urgency

_MOST_HEAD = 8_192
_MOST_CACHED = 512
_DIGITS = re.compile(r"[0-9]{1,6}")
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

AddressOf = Callable[[str, list[str]], str]
"""The limit key of a client, from its peer address and its X-Forwarded-For lines."""
_Encoded = tuple[bytes, bytes, Any]
ReplyTo = Callable[[LtzdError, str, str | None], Reply]
"""The answer to an error at this path, for a page of this origin."""


class EarlyRefusals:
    def __init__(
        self, gate: AdmissionGate, askers: Askers, address_of: AddressOf, reply_to: ReplyTo
    ) -> None:
        self._gate = gate
        self._askers = askers
        self._address_of = address_of
        self._reply_to = reply_to
        self._cache: LRUCache[tuple[object, ...], _Encoded]
        self._cache = LRUCache(_MOST_CACHED)
        self._process = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    @property
    def may_refuse(self) -> bool:
        """Whether any request waits. If none does, none is refused."""
        return self._gate.is_crowded

    def answer_to(self, data: bytes, peer: str) -> bytes | None:
        """The refusal of one whole request, or None if the application must see it."""
        end = data.find(b"\r\n\r\n", 0, _MOST_HEAD)
        if end < 0:
            return None
        request_line, *lines = data[:end].decode("latin-1").split("\r\n")
        method, _, rest = request_line.partition(" ")
        target, _, version = rest.partition(" ")
        path, _, query = target.partition("?")
        headers = _headers(lines)
        if version != "HTTP/1.1" or headers is None or not self._askers.is_static(path):
            return None
        body = data[end + 4 :]
        if len(body) != int(headers.get("content-length", "0")):
            return None
        forwarded = headers.get("x-forwarded-for")
        address = self._address_of(peer, [] if forwarded is None else [forwarded])
        asker = self._askers.of(method, path, query, headers.get, body[:BODY_BYTES], address)
        if asker.urgency is Urgency.ALWAYS:
            return None
        refusal = self._gate.refusal_of(asker)
        if refusal is None:
            return None
        self._gate.count_refusal(refusal)
        head, content, observed = self._encoded(refusal, path, headers.get("origin"))
        observed.observe(0.0)
        id_ = headers.get("x-request-id", "")
        if not REQUEST_ID.fullmatch(id_):
            id_ = f"{self._process}-r{next(self._numbers):x}"
        shown = b"" if method == "HEAD" else content
        return b"%bX-Request-Id: %b\r\n\r\n%b" % (head, id_.encode(), shown)

    def _encoded(self, refusal: LtzdError, path: str, origin: str | None) -> "_Encoded":
        """The head without its end, the body, and the metric that counts the answer."""
        # The rate window of a path that shows one names the second of its end.
        second = int(time.time())
        key = (path, type(refusal), refusal.details["retryAfterSeconds"], origin, second)
        encoded = self._cache.get(key)
        if encoded is None:
            reply = self._reply_to(refusal, path, origin)
            content = bytes(reply.body or b"")
            reply.headers["content-length"] = str(len(content))
            reply.headers["connection"] = "keep-alive"
            head: bytes = format_http1_response(reply.status, reply.processed_headers)
            observed = telemetry.HTTP_REQUEST_SECONDS.labels(path[1:], f"{reply.status // 100}xx")
            encoded = self._cache[key] = head.removesuffix(b"\r\n"), content, observed
        return encoded


def _headers(lines: list[str]) -> dict[str, str] | None:
    """Returns None if the application must judge a header: a repeated or an unusual one."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or name in headers:
            return None
        headers[name] = value.strip(" \t")
    if "transfer-encoding" in headers or "expect" in headers or "host" not in headers:
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    return headers if _DIGITS.fullmatch(headers.get("content-length", "0")) else None

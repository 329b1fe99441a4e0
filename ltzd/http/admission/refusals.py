"""Refuses a request from its raw bytes, if the gate would refuse it anyway.

The application spends several times as much on a request that it refuses: a task's turn, a request
object, routing, an exception. Under a flood that is most of the work. Here a head is parsed once
for all requests that repeat it, and the answer is taken from a cache. A request that is incomplete
or of an unusual form goes to the application, and so does every request while nothing waits.
"""

import itertools
import re
import secrets
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import msgspec
from cachetools import LRUCache
from sanic.headers import format_http1_response

from ltzd import telemetry
from ltzd.errors import LtzdError
from ltzd.http.admission.askers import BODY_BYTES, Askers
from ltzd.http.admission.gate import AdmissionGate, Asker
from ltzd.http.requests.header_form import is_well_formed
from ltzd.http.responses import Reply
from ltzd.rules.admission import Urgency

_MOST_HEAD = 4_096
_MOST_HEADS = 2_048
_MOST_ANSWERS = 512
_DIGITS = re.compile(r"[0-9]{1,6}")
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

AddressOf = Callable[[str, list[str]], str]
"""The limit key of a client, from its peer address and its X-Forwarded-For lines."""
ReplyTo = Callable[[LtzdError, str, str | None], Reply]
"""The answer to an error at this path, for a page of this origin."""


class _Head(msgspec.Struct, frozen=True):
    """A head that may be refused. `request_id` is the caller's, or empty."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body_bytes: int
    forwarded: list[str]
    origin: str | None
    request_id: str


class _Answer(msgspec.Struct, frozen=True):
    """`head` lacks its last header, the request's id, and its end."""

    head: bytes
    body: bytes
    observed: Any


class EarlyRefusals:
    def __init__(
        self, gate: AdmissionGate, askers: Askers, address_of: AddressOf, reply_to: ReplyTo
    ) -> None:
        self._gate = gate
        self._askers = askers
        self._address_of = address_of
        self._reply_to = reply_to
        self._heads: LRUCache[bytes, _Head | None] = LRUCache(_MOST_HEADS)
        self._answers: LRUCache[tuple[object, ...], _Answer] = LRUCache(_MOST_ANSWERS)
        self._process = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def answer_to(
        self, data: bytes, peer: str, *, was_held: bool = False
    ) -> tuple[bytes, Asker] | None:
        """The refusal of one whole request, or None if the application must see it.

        `was_held`: the connection was not read for a while (`connections/pace.py`).
        """
        if not was_held and not self._gate.may_refuse:
            self._gate.arrived()
            return None
        end = data.find(b"\r\n\r\n", 0, _MOST_HEAD)
        if end < 0:
            return None
        head = self._head(data[:end])
        if head is None or len(data) != end + 4 + head.body_bytes:
            return None
        asker = self._askers.of(
            head.method,
            head.path,
            head.query,
            head.headers.get,
            data[end + 4 : end + 4 + BODY_BYTES],
            self._address_of(peer, head.forwarded),
        )
        if asker.urgency is Urgency.ALWAYS:
            return None
        refusal = self._gate.refusal_of(asker, was_held=was_held)
        if refusal is None:
            self._gate.arrived(asker.party)
            return None
        self._gate.count_refusal(refusal, asker)
        answer = self._answer(refusal, head)
        answer.observed.observe(0.0)
        id_ = head.request_id or f"{self._process}-r{next(self._numbers):x}"
        body = b"" if head.method == "HEAD" else answer.body
        encoded = b"%bX-Request-Id: %b\r\n\r\n%b" % (answer.head, id_.encode(), body)
        return encoded, asker

    def _head(self, raw: bytes) -> _Head | None:
        try:
            return self._heads[raw]
        except KeyError:
            head = self._heads[raw] = self._parsed(raw)
            return head

    def _parsed(self, raw: bytes) -> _Head | None:
        """Return None if the application must judge the head: a repeated header, for example."""
        if not is_well_formed(raw):
            return None
        request_line, *lines = raw.decode("latin-1").split("\r\n")
        method, _, rest = request_line.partition(" ")
        target, _, version = rest.partition(" ")
        path, _, query = target.partition("?")
        headers = _headers(lines)
        if version != "HTTP/1.1" or headers is None or not self._askers.is_static(path):
            return None
        forwarded, id_ = headers.get("x-forwarded-for"), headers.get("x-request-id", "")
        return _Head(
            method=method,
            path=path,
            query=query,
            headers=headers,
            body_bytes=int(headers.get("content-length", "0")),
            forwarded=[] if forwarded is None else [forwarded],
            origin=headers.get("origin"),
            request_id=id_ if REQUEST_ID.fullmatch(id_) else "",
        )

    def _answer(self, refusal: LtzdError, head: _Head) -> _Answer:
        # The second is that of the Date, and of the end of a rate window that a path shows.
        second = int(time.time())
        seconds = refusal.details["retryAfterSeconds"]
        key = (head.path, type(refusal), seconds, head.origin, second)
        answer = self._answers.get(key)
        if answer is None:
            reply = self._reply_to(refusal, head.path, head.origin)
            body = bytes(reply.body or b"")
            reply.headers["content-length"] = str(len(body))
            reply.headers["connection"] = "keep-alive"
            reply.headers["Date"] = formatdate(second, usegmt=True)
            encoded: bytes = format_http1_response(reply.status, reply.processed_headers)
            status = f"{reply.status // 100}xx"
            observed = telemetry.HTTP_REQUEST_SECONDS.labels(head.path[1:], status)
            answer = _Answer(encoded.removesuffix(b"\r\n"), body, observed)
            self._answers[key] = answer
        return answer


def _headers(lines: list[str]) -> dict[str, str] | None:
    """Return None if the application must judge a header: a repeated or an unusual one."""
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

"""Reads a request body as a JSON object: bounded, strict, and free of control characters.

`read_json` returns the raw bytes, which a signature covers; `parse_object` parses them. A surface
that verifies the signature before anything else calls `read_body` and `require_json`, the two
halves of `read_json`.

Raises BodyTooLarge and BodyUnreadable. A repeated key has its last value.
"""

import asyncio
import re
from typing import Any

import msgspec
from sanic.exceptions import RequestTimeout
from sanic.request import Request

from ltzd.http.errors import BodyTooLarge, BodyUnreadable

EVENT_HANDLER_LIMIT = 10_240
"""Bytes; spec 8 says 10 KB."""

DRAIN_LIMIT = 1024 * 1024
"""Bytes up to which a body over its limit is read before its 413, so that its connection can serve
the next request. The rest of a larger body is discarded after the answer."""

MAX_DEPTH = 32
"""Levels of nesting."""

_SAFE_BRACKETS = 500
"""Opening brackets up to which a body may be decoded before its depth is known. msgspec recurses on
the C stack and stops only at Python's recursion limit, which libraries raise: a body nested deep
enough would end the process."""

_NO_BRACKETS = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?(?:"|\Z)|[^\[\]{}"]++',  # linear, for unended strings too
    re.DOTALL,
)
_CONTROL = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)))
_JSON_TYPE = re.compile(
    r'application/json\s*+(;\s*+charset\s*+=\s*+"?utf-8"?\s*+)?;?\s*+',  # linear, for spaces too
    re.IGNORECASE,
)

_decoder = msgspec.json.Decoder()


async def read_json(request: Request, limit: int = EVENT_HANDLER_LIMIT) -> bytes:
    """The body of a route with `ignore_body=True`: Sanic has not read it yet."""
    raw = await read_body(request, limit)
    require_json(request)
    return raw


def require_json(request: Request) -> None:
    """Check the Content-Type and Content-Encoding headers, of which a proxy may read any line."""
    headers = request.headers
    for encoding in headers.getall("content-encoding", ()):
        if encoding.strip().lower() != "identity":
            raise BodyUnreadable("Compressed request bodies are not accepted")
    content_types = headers.getall("content-type", ())
    if len(content_types) > 1:
        raise BodyUnreadable("Content-Type must be given once")
    content_type = content_types[0] if content_types else ""
    if content_type != "application/json" and not _JSON_TYPE.fullmatch(content_type):
        raise BodyUnreadable("Content-Type must be application/json")


async def read_body(request: Request, limit: int) -> bytes:
    """The bytes of the body; empty if there is none.

    The body must arrive within the application's `ctx.body_seconds`.
    """
    stream: Any = request.stream
    stream.request_max_size = DRAIN_LIMIT
    if not stream.request_body:
        return b""
    if has_whole_body(stream):
        return await _read_stream(stream, limit)  # no timer, which costs more
    try:
        async with asyncio.timeout(request.app.ctx.body_seconds):
            raw = await _read_stream(stream, limit)
    except TimeoutError as error:
        # Otherwise Sanic would wait for the rest after the response.
        stream.keep_alive, stream.request_body = False, None
        raise RequestTimeout("The body did not arrive in time") from error
    admission = request.app.ctx.admission
    if admission is not None:  # the admin port admits all
        await admission.body_arrived(request, raw)
    return raw


def has_whole_body(stream: Any) -> bool:
    """Whether nothing of the body is still to come. A chunked body has no known end."""
    if not stream.request_body:
        return True
    return stream.request_body is True and len(stream.recv_buffer) >= stream.request_bytes_left


async def _read_stream(stream: Any, limit: int) -> bytes:
    body = bytearray()
    size = 0
    while stream.request_body:
        piece = await stream.read() or b""
        size += len(piece)
        if size <= limit:
            body += piece
            stream.protocol.body_bytes = size
    if size > limit:
        raise BodyTooLarge(limit)
    return bytes(body)


def parse_object(raw: bytes) -> dict[str, Any]:
    brackets = raw.count(b"{") + raw.count(b"[")
    if brackets > _SAFE_BRACKETS:
        _refuse_deep_text(raw)
    try:
        value = _decoder.decode(raw)
    except UnicodeDecodeError as error:
        raise BodyUnreadable("Request body is not valid JSON: it is not UTF-8") from error
    except msgspec.DecodeError as error:
        raise BodyUnreadable(f"Request body is not valid JSON: {_reason(raw, error)}") from error
    except RecursionError as error:
        raise _too_deep() from error
    if not isinstance(value, dict):
        raise BodyUnreadable("Request body must be a JSON object")
    if brackets > MAX_DEPTH:
        _refuse_deep(value)
    # In valid JSON a control character needs an escape, DEL, or the lead byte of C1.
    may_hold_control = b"\\" in raw or b"\x7f" in raw or b"\xc2" in raw
    if not may_hold_control:
        return value
    clean: dict[str, Any] = without_control_characters(value)
    return clean


def _reason(raw: bytes, error: msgspec.DecodeError) -> str:
    """msgspec's text, which names positions and no values.

    For a lone surrogate msgspec reports truncated input.
    """
    text = str(error).removeprefix("JSON is malformed: ")
    if not raw.strip():
        return "it is empty"
    if text == "Input data was truncated":
        return "it ends too early, or holds half of a surrogate pair"
    text, _, _ = text.partition(" - at `")  # a path of brackets, without names
    return text[:1].lower() + text[1:]


def _too_deep() -> BodyUnreadable:
    return BodyUnreadable(f"Request body is nested deeper than {MAX_DEPTH} levels")


def _refuse_deep_text(raw: bytes) -> None:
    depth = 0
    for bracket in _NO_BRACKETS.sub(b"", raw):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise _too_deep()


def _refuse_deep(value: object) -> None:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    if any(isinstance(child, dict | list) for child in level):
        raise _too_deep()


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def without_control_characters(value: Any) -> Any:
    """Spec 2.1: C0, DEL and C1 are removed from every string, keys included."""
    if isinstance(value, str):
        return value.translate(_CONTROL)
    if isinstance(value, dict):
        return {
            key.translate(_CONTROL): without_control_characters(child)
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [without_control_characters(child) for child in value]
    return value

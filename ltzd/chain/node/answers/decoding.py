"""Decodes the JSON that nodes answer, whatever a node answers: loop and memory stay bounded.

An answer may be 32 MiB long. With `[]` as its values the decoder makes eleven million lists of it,
which takes four seconds and a gigabyte. The decoder holds the interpreter's lock meanwhile, so a
thread would not help. A long answer is therefore decoded as follows:

- Its values are counted first. An answer whose values are shorter than those of any honest one is
  refused (OversizedAnswer).
- The answer is decoded in parts, between which the event loop goes on. A decoder that builds no
  values finds the parts: it only skips.
- A long part is dropped if it stands under a name that ltzd never reads.
- One long answer of the process is decoded at a time.

Short answers are decoded at once.
"""

import asyncio
import time
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from ltzd.chain.node.log_entries import LogEntry
from ltzd.errors import NodeFaultKind

SHORT_BYTES: Final = 256 * 1024
"""A hostile answer of this length is decoded within 30 ms."""

_LONGEST_HOLD_SECONDS: Final = 0.01
_SLICE_BYTES: Final = 4 * 1024 * 1024
"""Counted at once, which takes 10 ms."""
_LEAST_BYTES_OF_A_VALUE: Final = 24
"""On average. Headers with withdrawals and no transactions come nearest to it, with 31."""
_LEAST_BYTES_OF_AN_OBJECT: Final = 64
"""On average. Withdrawals have 110."""
_DEEPEST: Final = 8
"""A batch, a reply, its receipts, a receipt, its logs, a log, its data: seven long parts."""
_MOST_FIELDS: Final = 1_000
"""The most fields of a long object."""
_LONG_FIELDS: Final = frozenset(("result", "transactions", "logs", "data", "input"))
"""Names under which ltzd reads long values. A long error object is left out, too."""
_LIST_DECODER: Final = msgspec.json.Decoder(list[Any])
_LOGS_DECODER: Final = msgspec.json.Decoder(list[LogEntry])
_PARTS_DECODER: Final = msgspec.json.Decoder(list[msgspec.Raw])
_FIELDS_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

_Text: TypeAlias = bytes | msgspec.Raw
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class MalformedAnswer(ValueError):
    """The answer is not JSON; `kind` is `oversized` for JSON such as no honest node answers."""

    kind: NodeFaultKind = "malformed"


class OversizedAnswer(MalformedAnswer):
    kind = "oversized"


class _LogsReply(msgspec.Struct, gc=False):
    id: int
    result: msgspec.Raw


_LOGS_REPLY_DECODER: Final = msgspec.json.Decoder(_LogsReply)


def is_short(raw: bytes) -> bool:
    return len(raw) <= SHORT_BYTES


def decode_short(raw: bytes) -> Any:
    """The value of an answer that is short. Raises MalformedAnswer."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedAnswer("The node's answer is not JSON") from error


async def decode(raw: bytes) -> Any:
    """The answer's value. Raises MalformedAnswer."""
    if is_short(raw):
        return decode_short(raw)
    async with _turn():
        _pace.begin()
        await _check_density(raw)
        try:
            return await _decoded(raw, 0)
        except (msgspec.DecodeError, RecursionError) as error:
            raise MalformedAnswer("The node's answer is not JSON") from error


async def decode_logs(raw: bytes) -> dict[str, Any] | None:
    """A long reply with LogEntry objects, or None for an error object and for malformed logs.

    Raises MalformedAnswer for values that are too many.
    """
    async with _turn():
        _pace.begin()
        await _check_density(raw)
        try:
            reply = _LOGS_REPLY_DECODER.decode(raw)
            if _first(reply.result) != b"[":
                return None
            logs = await _items(reply.result, _LOGS_DECODER, 2)
        except (msgspec.DecodeError, RecursionError):
            return None
    return {"id": reply.id, "result": logs}


def _turn() -> asyncio.Lock:
    return _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())


class _Pace:
    """When the loop last went on during a decoding; one answer is decoded at a time."""

    def __init__(self) -> None:
        self._since = 0.0

    def begin(self) -> None:
        self._since = time.perf_counter()

    async def let_others_run(self) -> None:
        """Let the loop go on once the decoding has held it for long enough.

        A task that a socket or a timer wakes goes on in the third turn of the loop. In a busy loop
        each turn takes milliseconds: an answer that is decoded quickly waits for none.
        """
        if time.perf_counter() - self._since < _LONGEST_HOLD_SECONDS:
            return
        for _ in range(3):
            await asyncio.sleep(0)
        self.begin()


_pace: Final = _Pace()


async def _check_density(raw: bytes) -> None:
    values = objects = 0
    for begin in range(0, len(raw), _SLICE_BYTES):
        end = begin + _SLICE_BYTES
        braces = raw.count(b"{", begin, end)
        objects += braces
        values += braces + raw.count(b"[", begin, end) + raw.count(b",", begin, end)
        await _pace.let_others_run()
    least = max(values * _LEAST_BYTES_OF_A_VALUE, objects * _LEAST_BYTES_OF_AN_OBJECT)
    if least > len(raw):
        raise OversizedAnswer(
            f"The node's answer of {len(raw)} bytes holds more values than an honest answer"
        )


async def _decoded(text: _Text, depth: int) -> Any:
    if memoryview(text).nbytes <= SHORT_BYTES:
        return msgspec.json.decode(text)
    if depth > _DEEPEST:
        raise OversizedAnswer("The node's long answer is nested too deeply")
    await _pace.let_others_run()
    match _first(text):
        case b"[":
            return await _items(text, _LIST_DECODER, depth)
        case b"{":
            return await _fields(text, depth)
        case b'"':
            return msgspec.json.decode(text)
    raise MalformedAnswer("The node's answer is not JSON")


async def _items(text: _Text, decoder: msgspec.json.Decoder[list[Any]], depth: int) -> list[Any]:
    """A long list, of which many short items are decoded at once."""
    parts = _PARTS_DECODER.decode(text)
    items: list[Any] = []
    at_once = max(1, SHORT_BYTES * len(parts) // memoryview(text).nbytes)
    while parts:
        await _pace.let_others_run()
        group = parts[:at_once]
        del parts[:at_once]
        joined = b"[%b]" % b",".join(group)
        if len(joined) <= 2 * SHORT_BYTES or decoder is _LOGS_DECODER:
            items += decoder.decode(joined)
        else:
            items += [await _decoded(part, depth + 1) for part in group]
    return items


async def _fields(text: _Text, depth: int) -> dict[str, Any]:
    fields = _FIELDS_DECODER.decode(text)
    if len(fields) > _MOST_FIELDS:
        raise OversizedAnswer("The node's long answer has an object with too many fields")
    return {
        name: await _decoded(part, depth + 1)
        for name, part in fields.items()
        if name in _LONG_FIELDS or memoryview(part).nbytes <= SHORT_BYTES
    }


def _first(text: _Text) -> bytes:
    return bytes(memoryview(text)[:64]).lstrip()[:1]

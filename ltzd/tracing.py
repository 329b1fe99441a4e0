"""Spans of events, from the HTTP request to the block of the mint, over all processes.

The trace of an event has the event's id, and its root span has the id's last eight bytes. So each
process knows the trace from the reward that it works on, and nothing is stored for it. A request
that recorded one event is the root of the event's trace. Any other request has a trace of its own,
with links to the events that it recorded.

Without a sink, which `daemon/tracing` starts, every function returns at once.

Units: times in nanoseconds of the Unix clock. Attributes hold ids, no tokens and no e-mail
addresses.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from time import time_ns
from typing import Protocol
from uuid import UUID

import msgspec

Attributes = Mapping[str, str | int]

_SPAN_ID_MASK = (1 << 64) - 1


class SpanIds(msgspec.Struct, frozen=True):
    """Names a span: its trace's 128 bits and its own 64."""

    trace_id: int
    span_id: int


class Span(msgspec.Struct, frozen=True):
    """A span that is over. `parent` is None for the root of a trace."""

    name: str
    ids: SpanIds
    parent: SpanIds | None
    begun_at: int
    ended_at: int
    attributes: Attributes
    links: Sequence[SpanIds] = ()
    is_request: bool = False
    has_failed: bool = False


class SpanSink(Protocol):
    def record(self, span: Span) -> None:
        """Keep the span for export; must not wait."""


class RequestTrace(msgspec.Struct):
    """The events that one request has recorded so far."""

    begun_at: int
    events: list[UUID] = msgspec.field(default_factory=list)


_sink: SpanSink | None = None
_request: ContextVar[RequestTrace | None] = ContextVar("request_trace", default=None)


def start(sink: SpanSink) -> None:
    """From now on spans of this process go to the sink."""
    global _sink  # noqa: PLW0603 - the process has one sink, as it has one registry of metrics
    _sink = sink


def stop() -> None:
    global _sink  # noqa: PLW0603
    _sink = None


def is_on() -> bool:
    return _sink is not None


def now() -> int:
    """Return 0 while tracing is off: a span's begin is then never read."""
    return 0 if _sink is None else time_ns()


def root_of(event: UUID) -> SpanIds:
    """The root span of the event's trace."""
    return SpanIds(event.int, event.int & _SPAN_ID_MASK)


# Requests


def begin_request() -> None:
    if _sink is not None:
        _request.set(RequestTrace(time_ns()))


def note_event(event: UUID) -> None:
    """The request that this task serves is about to record the event."""
    if _sink is not None:
        request = _request.get()
        if request is not None:
            request.events.append(event)


def end_request(attributes: Attributes, *, has_failed: bool) -> None:
    """Record the span of the request that this task serves."""
    if _sink is None:
        return
    request = _request.get()
    if request is None:
        return
    _request.set(None)
    ended_at = time_ns()
    roots = [root_of(event) for event in request.events]
    ids = roots[0] if len(roots) == 1 else SpanIds(secrets.randbits(128), _new_span_id())
    links = () if len(roots) == 1 else roots
    name = f"{attributes['http.request.method']} {attributes['http.route']}"
    _sink.record(
        Span(
            *(name, ids, None, request.begun_at, ended_at, attributes, links),
            is_request=True,
            has_failed=has_failed,
        )
    )
    for root in links:
        _sink.record(Span("event", root, None, request.begun_at, ended_at, {}, (ids,)))


# Steps of events


def step(name: str, events: Iterable[UUID], begun_at: int, attributes: Attributes) -> None:
    """Record a step that ends now in the trace of each event. Rewards have their events' ids."""
    if _sink is None:
        return
    ended_at = time_ns()
    for event in events:
        root = root_of(event)
        ids = SpanIds(root.trace_id, _new_span_id())
        _sink.record(Span(name, ids, root, begun_at or ended_at, ended_at, attributes))


def _new_span_id() -> int:
    return secrets.randbits(64) or 1

"""Exports spans to an OpenTelemetry collector (OTLP over HTTP), if the settings name one.

The packages of OpenTelemetry are an extra of ltzd, imported only then. A thread of its own sends
the spans in batches. Spans that the collector does not take in time are lost, and nothing waits for
it.
"""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from os import getpid
from typing import TYPE_CHECKING

from ltzd import __version__, tracing
from ltzd.concurrency.outages import Outage
from ltzd.daemon.settings.tracing import TracingSettings
from ltzd.errors import Misconfigured
from ltzd.tracing import Span, SpanIds

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

_EXPORT_SECONDS = 5.0
_EVERY_SECONDS = 2.0
_LAST_EXPORT_SECONDS = 3.0
"""How long the end of a process waits for the last spans."""
_RATIO_BITS = 56
"""The last bits of a trace id are random; they decide whether it is exported, in every process."""


@asynccontextmanager
async def exported_spans(settings: TracingSettings | None) -> AsyncIterator[None]:
    """Export this process's spans within the block. Raises Misconfigured without the packages."""
    if settings is None:
        yield
        return
    if find_spec("opentelemetry") is None:
        raise Misconfigured(
            "[tracing] needs OpenTelemetry's packages: install ltzd[tracing] "
            "(pip install 'ltzd[tracing]'), or remove the section."
        )
    sink = OpenTelemetrySink(settings)
    tracing.start(sink)
    try:
        yield
    finally:
        tracing.stop()
        await sink.close()


class OpenTelemetrySink:
    def __init__(self, settings: TracingSettings) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        # The outage is told once, here: these loggers would repeat it with each batch.
        for name in ("opentelemetry.exporter", "opentelemetry.sdk"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        token = settings.token()
        headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
        exporter = OTLPSpanExporter(settings.endpoint, headers=headers, timeout=_EXPORT_SECONDS)
        self._processor = BatchSpanProcessor(
            _told_once(exporter), schedule_delay_millis=1000 * _EVERY_SECONDS
        )
        self._resource = Resource(
            {
                "service.name": settings.service_name,
                "service.version": __version__,
                "service.instance.id": f"{socket.gethostname()}:{getpid()}",
            }
        )
        self._bound = int(settings.ratio * (1 << _RATIO_BITS))

    def record(self, span: Span) -> None:
        if span.ids.trace_id & ((1 << _RATIO_BITS) - 1) < self._bound:
            self._processor.on_end(self._readable(span))

    def _readable(self, span: Span) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode  # noqa: PLC0415

        return ReadableSpan(
            span.name,
            context=_context(span.ids),
            parent=None if span.parent is None else _context(span.parent),
            resource=self._resource,
            attributes=span.attributes,
            links=[Link(_context(ids)) for ids in span.links],
            kind=SpanKind.SERVER if span.is_request else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR if span.has_failed else StatusCode.UNSET),
            start_time=span.begun_at,
            end_time=span.ended_at,
        )

    async def close(self) -> None:
        """Export the last spans, for a bounded time."""
        # A daemon thread: a collector that hangs must not keep the process.
        ending = threading.Thread(target=self._processor.shutdown, daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, _LAST_EXPORT_SECONDS)


def _context(ids: SpanIds) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415

    sampled = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(ids.trace_id, ids.span_id, is_remote=False, trace_flags=sampled)


def _told_once(exporter: "SpanExporter") -> "SpanExporter":
    """The exporter, whose failures are two lines of the log: one as they begin, one at the end."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult  # noqa: PLC0415

    outage = Outage("tracing.collector_away", "tracing.collector_back", time.monotonic)

    class ToldOnce(SpanExporter):
        def export(self, spans: Sequence["ReadableSpan"]) -> SpanExportResult:
            result = exporter.export(spans)
            if result is SpanExportResult.SUCCESS:
                outage.over()
            else:
                outage.failed("The collector did not accept the spans; they are lost")
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return ToldOnce()

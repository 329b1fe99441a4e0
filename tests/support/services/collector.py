"""An OpenTelemetry collector: takes spans as OTLP over HTTP, and keeps them."""

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATH = "/v1/traces"


class Collector:
    """`is_away`: it refuses spans. `service` is what the last export said of its sender."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Any] = []
        self.service: dict[str, str] = {}
        self.authorization: str | None = None
        self.refused = 0
        self.is_away = False

    async def take(self, request: web.Request) -> web.Response:
        if self.is_away:
            self.refused += 1
            return web.Response(status=400)
        body = await request.read()
        if body.startswith(b"\x1f\x8b"):
            body = gzip.decompress(body)
        self.authorization = request.headers.get("Authorization")
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for attribute in resource.resource.attributes:
                self.service[attribute.key] = attribute.value.string_value
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return web.Response()

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@asynccontextmanager
async def a_collector() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application()
    app.router.add_post(PATH, collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    collector.url = f"http://127.0.0.1:{port}{PATH}"
    try:
        yield collector
    finally:
        await runner.cleanup()

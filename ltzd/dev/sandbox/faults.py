"""Faults that tests order for an outside service: its next requests are delayed, refused or cut.

A request uses a fault up when it arrives. `drop: true` cuts the connection before the request is
handled; `drop: "reply"` handles the request and then cuts the connection.
"""

import asyncio
from collections.abc import Mapping

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec.structs import replace

from ltzd.dev.sandbox.oauth import errors as account_errors
from ltzd.dev.sandbox.payments.errors import ordered_fault
from ltzd.dev.sandbox.requests import (
    BadInputError,
    Body,
    allow_only,
    control_body,
    json_reply,
    number_in,
    text_in,
    whole_number_in,
)
from ltzd.dev.sandbox.site import errors as site_errors

# The path prefix of each HTTP service. The host site's is that of ltzd's own requests, so that its
# visitors use no faults up.
SERVICES: Mapping[str, str] = {
    "identity": "/identity/",
    "payments": "/payments/",
    "accounts": "/accounts/",
    "site": "/site/wp-json/wp/",
}
DNS = "dns"

_FIELDS = ("service", "delaySeconds", "status", "drop", "retryAfterSeconds", "times")
_MOST_TIMES = 1_000_000


class Fault(msgspec.Struct, frozen=True):
    times: int
    delay_seconds: float = 0.0
    status: int | None = None
    retry_after_seconds: int | None = None
    drops_request: bool = False
    drops_reply: bool = False


class Faults:
    def __init__(self) -> None:
        self._orders: dict[str, Fault] = {}
        self._stopping = asyncio.Event()

    def order(self, service: str, fault: Fault) -> None:
        """Order a fault for a service, in place of an earlier order."""
        self._orders[service] = fault

    def left(self, service: str) -> int:
        fault = self._orders.get(service)
        return fault.times if fault is not None else 0

    def release_delays(self) -> None:
        """End all delays that are under way, so that the server can stop."""
        self._stopping.set()

    def consume_for_path(self, path: str) -> Fault | None:
        """Use up one of the faults of this path's service; None if there is none."""
        service = next((name for name, start in SERVICES.items() if path.startswith(start)), None)
        return None if service is None else self.consume(service)

    def consume(self, service: str) -> Fault | None:
        """Use up one of the service's faults; None if there is none."""
        fault = self._orders.get(service)
        if fault is None or fault.times == 0:
            return None
        self._orders[service] = replace(fault, times=fault.times - 1)
        return fault

    async def handle_control(self, request: web.Request) -> web.Response:
        """POST {"service", "times", "delaySeconds"?, "status"?, "drop"?, "retryAfterSeconds"?}."""
        body = await control_body(request)
        service = text_in(body, "service")
        services = (*SERVICES, DNS)
        if service not in services:
            raise BadInputError("service", f"must be one of {', '.join(services)}")
        fault = parse_fault(body)
        self.order(service, fault)
        return json_reply({"service": service, "times": fault.times})

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        fault = self.consume_for_path(request.path)
        if fault is None:
            return await handler(request)
        is_cut = fault.drops_request or await self.stopped_within(fault.delay_seconds)
        if is_cut:
            return _cut(request)
        if fault.status is not None:
            return _refusal(request.path, fault.status, fault.retry_after_seconds)
        answer = await handler(request)
        return _cut(request) if fault.drops_reply else answer

    async def stopped_within(self, seconds: float) -> bool:
        """Wait for `seconds`; returns True early if the server stops meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                return await self._stopping.wait()
        except TimeoutError:
            return False


def parse_fault(body: Body) -> Fault:
    allow_only(body, *_FIELDS)
    drop = body.get("drop", False)
    if not isinstance(drop, bool) and drop != "reply":
        raise BadInputError("drop", 'must be true, false or "reply"')
    fault = Fault(
        times=whole_number_in(body, "times", 0, _MOST_TIMES),
        delay_seconds=number_in(body, "delaySeconds", 0, 600) if "delaySeconds" in body else 0.0,
        status=whole_number_in(body, "status", 400, 599) if "status" in body else None,
        retry_after_seconds=whole_number_in(body, "retryAfterSeconds", 0, 86_400)
        if "retryAfterSeconds" in body
        else None,
        drops_request=drop is True,
        drops_reply=drop == "reply",
    )
    if not (fault.delay_seconds or fault.status or drop) and fault.times:
        raise BadInputError("delaySeconds", "one of delaySeconds, status and drop is needed")
    return fault


def _refusal(path: str, status: int, retry_after_seconds: int | None) -> web.Response:
    if path.startswith(SERVICES["payments"]):
        reply = ordered_fault(status)
    elif path.startswith(SERVICES["accounts"]):
        reply = account_errors.ordered_fault(path, status, retry_after_seconds)
    elif path.startswith(SERVICES["site"]):
        reply = site_errors.ordered_fault(status)
    else:
        code = "too_many_requests" if status == 429 else "ordered_fault"
        reply = json_reply({"error": "A fault ordered at the sandbox", "code": code}, status)
    if retry_after_seconds is not None:
        reply.headers["Retry-After"] = str(retry_after_seconds)
    return reply


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()

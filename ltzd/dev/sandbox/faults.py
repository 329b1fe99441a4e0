"""Faults ordered for an outside service: the next so many requests are late, refused or cut off.

A request counts when it arrives. `drop` cuts the connection before anything was done;
`drop: "reply"` carries the request out and loses the answer, the nastier of the two.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from aiohttp import web
from aiohttp.typedefs import Handler

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

# The path under which each service that the sandbox speaks HTTP for lives. Of the host site, what
# ltzd asks: its visitors use no fault up.
SERVICES: Mapping[str, str] = {
    "identity": "/identity/",
    "payments": "/payments/",
    "accounts": "/accounts/",
    "site": "/site/wp-json/wp/",
}
DNS = "dns"

_FIELDS = ("service", "delaySeconds", "status", "drop", "retryAfterSeconds", "times")
_MOST_TIMES = 1_000_000


@dataclass(frozen=True, slots=True)
class Fault:
    times: int
    delay_seconds: float = 0.0
    status: int | None = None
    retry_after_seconds: int | None = None
    drops_request: bool = False
    drops_reply: bool = False


class Faults:
    def __init__(self) -> None:
        self._orders: dict[str, Fault] = {}
        self._ended = asyncio.Event()

    def order(self, service: str, fault: Fault) -> None:
        """Replaces what was ordered for this service before."""
        self._orders[service] = fault

    def left(self, service: str) -> int:
        fault = self._orders.get(service)
        return fault.times if fault is not None else 0

    def end(self) -> None:
        """Cut off whoever still waits out a delay, so that the server can stop."""
        self._ended.set()

    def take(self, path: str) -> Fault | None:
        """The fault for one request to this path, now spent once."""
        service = next((name for name, start in SERVICES.items() if path.startswith(start)), None)
        return None if service is None else self.consume(service)

    def consume(self, service: str) -> Fault | None:
        """The fault for one request to this service, now spent once."""
        fault = self._orders.get(service)
        if fault is None or fault.times == 0:
            return None
        self._orders[service] = replace(fault, times=fault.times - 1)
        return fault

    async def door(self, request: web.Request) -> web.Response:
        body = await control_body(request)
        service = text_in(body, "service")
        known = (*SERVICES, DNS)
        if service not in known:
            raise BadInputError("service", f"must be one of {', '.join(known)}")
        fault = fault_from(body)
        self.order(service, fault)
        return json_reply({"service": service, "times": fault.times})

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        fault = self.take(request.path)
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
        """Wait out a delay, unless the server stops meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                return await self._ended.wait()
        except TimeoutError:
            return False


def fault_from(body: Body) -> Fault:
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

"""The demo brands' webhook endpoint: receives ltzd's deliveries and shows them.

A test may choose status and delay of the next answers. A delivery is listed from its arrival on,
before its answer, and uses the answer plan that is in force when it arrives.
"""

import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from aiohttp import web
from msgspec.structs import replace

from ltzd.dev.sandbox import pages
from ltzd.dev.sandbox.faults import Faults
from ltzd.dev.sandbox.requests import (
    BadInputError,
    Body,
    allow_only,
    control_body,
    json_reply,
    number_in,
    whole_number_in,
)
from ltzd.dev.sandbox.webhooks.delivery_log import DeliveryLog, ReceivedDelivery
from ltzd.values import iso

PREFIX = "/inbox"
CONTROL_PATH = "/doors/webhook-inbox"

_BRAND_ID = re.compile(r"0x[0-9a-fA-F]{40}")
_BODILESS = frozenset({204, 304})
_MAX_TIMES = 1_000_000
_SHOWN = 100
_SHOWN_CHARACTERS = 2_000


class AnswerPlan(msgspec.Struct, frozen=True):
    """The answer to each of the next `times` deliveries."""

    times: int = 0
    status: int = 200
    delay_seconds: float = 0.0
    retry_after_seconds: int | None = None


class WebhookInbox:
    def __init__(self, folder: Path, faults: Faults) -> None:
        self._log = DeliveryLog(folder / "inbox.jsonl")
        self._faults = faults
        self._plan = AnswerPlan()

    def open(self) -> None:
        """Raises Misconfigured."""
        self._log.open()

    async def close(self) -> None:
        await self._log.close()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(PREFIX + "/{brand_id}", self._receive),
            web.get(PREFIX + "/", self._page),
            web.get(CONTROL_PATH, self._list),
            web.delete(CONTROL_PATH, self._clear),
            web.post(CONTROL_PATH, self._set_plan),
        ]

    async def _receive(self, request: web.Request) -> web.Response:
        brand_id = request.match_info["brand_id"]
        if not _BRAND_ID.fullmatch(brand_id):
            raise web.HTTPNotFound
        raw = await request.read()
        plan = self._next_plan()
        delivery = ReceivedDelivery(
            brand_id=brand_id.lower(),
            received_at=iso(datetime.now(UTC)),
            headers={
                name.lower(): ", ".join(request.headers.getall(name)) for name in request.headers
            },
            body=raw.decode(errors="replace"),
            status=None if plan.delay_seconds else plan.status,
        )
        number = await self._log.record_arrival(delivery)
        if plan.delay_seconds:
            is_stopping = await self._faults.stopped_within(plan.delay_seconds)
            if is_stopping or not _is_connected(request):
                return _cut(request)
            await self._log.record_answer(number, plan.status)
        return _answer(request, plan)

    def _next_plan(self) -> AnswerPlan:
        plan = self._plan
        if not plan.times:
            return AnswerPlan()
        self._plan = replace(plan, times=plan.times - 1)
        return plan

    async def _list(self, _request: web.Request) -> web.Response:
        return json_reply(
            [
                {
                    "brandId": delivery.brand_id,
                    "receivedAt": delivery.received_at,
                    "headers": delivery.headers,
                    "body": delivery.body,
                    "status": delivery.status,
                }
                for delivery in self._log.deliveries()
            ]
        )

    async def _clear(self, _request: web.Request) -> web.Response:
        await self._log.clear()
        return json_reply([])

    async def _set_plan(self, request: web.Request) -> web.Response:
        self._plan = _parse_plan(await control_body(request))
        return json_reply({"times": self._plan.times})

    async def _page(self, _request: web.Request) -> web.Response:
        newest = self._log.deliveries()[: -_SHOWN - 1 : -1]
        if not newest:
            return pages.page("Webhook inbox", pages.note("No delivery has arrived yet."))
        titles = ("Received", "Brand", "Answered", "Id", "Body")
        return pages.page(
            "Webhook inbox",
            pages.note(f"The newest {_SHOWN} deliveries of ltzd to the demo brands."),
            pages.table(titles, [_row(delivery) for delivery in newest]),
        )


def _parse_plan(body: Body) -> AnswerPlan:
    allow_only(body, "status", "delaySeconds", "retryAfterSeconds", "times")
    plan = AnswerPlan(
        times=whole_number_in(body, "times", 0, _MAX_TIMES),
        status=whole_number_in(body, "status", 200, 599) if "status" in body else 200,
        delay_seconds=number_in(body, "delaySeconds", 0, 600) if "delaySeconds" in body else 0.0,
        retry_after_seconds=whole_number_in(body, "retryAfterSeconds", 0, 86_400)
        if "retryAfterSeconds" in body
        else None,
    )
    if plan.times and not body.keys() & {"status", "delaySeconds"}:
        raise BadInputError("status", "or delaySeconds is required")
    return plan


def _answer(request: web.Request, plan: AnswerPlan) -> web.Response:
    headers = {}
    if plan.retry_after_seconds is not None:
        headers["Retry-After"] = str(plan.retry_after_seconds)
    if 300 <= plan.status < 400:
        headers["Location"] = request.path  # a sender that follows it is listed twice
    if plan.status in _BODILESS:
        return web.Response(status=plan.status, headers=headers)
    reply = json_reply({"received": plan.status < 300}, plan.status)
    reply.headers.update(headers)
    return reply


def _is_connected(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _row(delivery: ReceivedDelivery) -> list[pages.Html]:
    is_good = delivery.status is not None and delivery.status < 300
    return [
        pages.text(delivery.received_at),
        pages.text(delivery.brand_id),
        pages.text(delivery.status or "not yet", "good" if is_good else "bad"),
        pages.text(delivery.headers.get("webhook-id", "")),
        pages.text(delivery.body[:_SHOWN_CHARACTERS]),
    ]

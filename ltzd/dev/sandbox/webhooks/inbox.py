"""The demo brands' server as far as webhooks go: takes what ltzd sends, and shows it.

A test may have the next deliveries fail or wait. A delivery is in the list from its arrival on,
answered or not; the order it meets is that of the moment it came.
"""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

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
DOOR = "/doors/webhook-inbox"

_BRAND_ID = re.compile(r"0x[0-9a-fA-F]{40}")
_BODILESS = frozenset({204, 304})
_MOST_TIMES = 1_000_000
_SHOWN = 100
_SHOWN_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """How the next `times` deliveries are answered."""

    times: int = 0
    status: int = 200
    delay_seconds: float = 0.0
    retry_after_seconds: int | None = None


class WebhookInbox:
    def __init__(self, folder: Path, faults: Faults) -> None:
        self._log = DeliveryLog(folder / "inbox.jsonl")
        self._faults = faults
        self._order = AnswerPlan()

    def open(self) -> None:
        """Raises Misconfigured."""
        self._log.open()

    async def close(self) -> None:
        await self._log.close()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(PREFIX + "/{brand_id}", self._receive),
            web.get(PREFIX + "/", self._page),
            web.get(DOOR, self._list),
            web.delete(DOOR, self._empty),
            web.post(DOOR, self._take_order),
        ]

    async def _receive(self, request: web.Request) -> web.Response:
        brand_id = request.match_info["brand_id"]
        if not _BRAND_ID.fullmatch(brand_id):
            raise web.HTTPNotFound
        raw = await request.read()
        order = self._next_order()
        delivery = ReceivedDelivery(
            brand_id=brand_id.lower(),
            received_at=iso(datetime.now(UTC)),
            headers={
                name.lower(): ", ".join(request.headers.getall(name)) for name in request.headers
            },
            body=raw.decode(errors="replace"),
            status=None if order.delay_seconds else order.status,
        )
        number = await self._log.came(delivery)
        if order.delay_seconds:
            is_stopping = await self._faults.stopped_within(order.delay_seconds)
            if is_stopping or not _is_heard(request):
                return _cut(request)
            await self._log.answered(number, order.status)
        return _answer(request, order)

    def _next_order(self) -> AnswerPlan:
        order = self._order
        if not order.times:
            return AnswerPlan()
        self._order = replace(order, times=order.times - 1)
        return order

    async def _list(self, _request: web.Request) -> web.Response:
        return json_reply(
            [
                {
                    "brandId": one.brand_id,
                    "receivedAt": one.received_at,
                    "headers": one.headers,
                    "body": one.body,
                    "status": one.status,
                }
                for one in self._log.deliveries()
            ]
        )

    async def _empty(self, _request: web.Request) -> web.Response:
        await self._log.empty()
        return json_reply([])

    async def _take_order(self, request: web.Request) -> web.Response:
        self._order = _order_from(await control_body(request))
        return json_reply({"times": self._order.times})

    async def _page(self, _request: web.Request) -> web.Response:
        newest = self._log.deliveries()[: -_SHOWN - 1 : -1]
        if not newest:
            return pages.page("Webhook inbox", pages.note("Nothing has come yet."))
        titles = ("Received", "Brand", "Answered", "Id", "Body")
        return pages.page(
            "Webhook inbox",
            pages.note(f"What ltzd sent to the demo brands, the newest {_SHOWN} of it."),
            pages.table(titles, [_row(one) for one in newest]),
        )


def _order_from(body: Body) -> AnswerPlan:
    allow_only(body, "status", "delaySeconds", "retryAfterSeconds", "times")
    order = AnswerPlan(
        times=whole_number_in(body, "times", 0, _MOST_TIMES),
        status=whole_number_in(body, "status", 200, 599) if "status" in body else 200,
        delay_seconds=number_in(body, "delaySeconds", 0, 600) if "delaySeconds" in body else 0.0,
        retry_after_seconds=whole_number_in(body, "retryAfterSeconds", 0, 86_400)
        if "retryAfterSeconds" in body
        else None,
    )
    if order.times and not body.keys() & {"status", "delaySeconds"}:
        raise BadInputError("status", "or delaySeconds is needed")
    return order


def _answer(request: web.Request, order: AnswerPlan) -> web.Response:
    headers = {}
    if order.retry_after_seconds is not None:
        headers["Retry-After"] = str(order.retry_after_seconds)
    if 300 <= order.status < 400:
        headers["Location"] = request.path  # who follows it shows in the list
    if order.status in _BODILESS:
        return web.Response(status=order.status, headers=headers)
    reply = json_reply({"received": order.status < 300}, order.status)
    reply.headers.update(headers)
    return reply


def _is_heard(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _row(one: ReceivedDelivery) -> list[pages.Html]:
    is_good = one.status is not None and one.status < 300
    return [
        pages.text(one.received_at),
        pages.text(one.brand_id),
        pages.text(one.status or "not yet", "good" if is_good else "bad"),
        pages.text(one.headers.get("webhook-id", "")),
        pages.text(one.body[:_SHOWN_CHARACTERS]),
    ]

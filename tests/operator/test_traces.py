"""An event is one trace, from its request over the database and the lane to the block."""

from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import UUID

import aiohttp
import pytest_asyncio
from structlog.testing import capture_logs

from ltzd import tracing
from ltzd.daemon.settings.tracing import TracingSettings
from ltzd.daemon.tracing import exported_spans
from ltzd.http.app import build_app
from ltzd.http.services import HttpPolicy
from tests.support.chain.mint_world import World
from tests.support.rows.core import BRAND
from tests.support.services.collector import Collector, a_collector
from tests.support.surfaces.event_action import a_handler, sandbox
from tests.support.surfaces.http_surface import services_over, serving
from tests.support.waiting import until

__all__ = ["sandbox"]

STEPS = ("database commit", "mint signed", "mint published", "block")


@pytest_asyncio.fixture
async def collector() -> AsyncIterator[Collector]:
    async with a_collector() as collector:
        yield collector


@pytest_asyncio.fixture
async def surface(database_url: str, sandbox: Any) -> AsyncIterator[str]:
    """The address of the event surface, over the real action."""
    async with a_handler(database_url, sandbox) as handler:
        app = build_app(services_over(cast("Any", handler)), HttpPolicy())
        async with serving(app) as url:
            yield url


def an_event(name: str) -> dict[str, str]:
    return {
        "brandId": "0x" + BRAND.hex(),
        "eventType": "account_creation",
        "userEmail": f"{name}@shop.example",
        "domain": "shop.example",
    }


async def post(url: str, path: str, body: Any) -> Any:
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{url}/service-api/{path}", json=body) as answer,
    ):
        assert answer.status in {200, 202}, await answer.text()
        return await answer.json()


async def confirmed(world: World) -> None:
    """By then the lane has also traced the block: a step is traced once it is committed."""
    await world.settled("mined")
    world.node.mine(3)
    await world.settled("confirmed")


async def test_an_event_is_one_trace_from_its_request_to_its_block(
    world: World, surface: str, collector: Collector
) -> None:
    world.node.mines_at_once = True
    async with exported_spans(TracingSettings(endpoint=collector.url)):
        answer = await post(surface, "manual-event", an_event("ann"))
        async with world.serving():
            await world.minted()
            await confirmed(world)
    event = UUID(answer["eventId"])
    (root,) = [span for span in collector.spans if span.name.startswith("POST")]
    assert root.name == "POST service-api/manual-event"
    assert root.trace_id == event.bytes
    assert not root.parent_span_id
    for name in STEPS:
        (span,) = collector.named(name)
        assert span.trace_id == event.bytes, name
        assert span.parent_span_id == root.span_id, name
        assert root.start_time_unix_nano <= span.end_time_unix_nano, name
    ends = [collector.named(name)[0].end_time_unix_nano for name in STEPS]
    assert ends == sorted(ends)
    assert collector.service["service.name"] == "ltzd"
    assert "shop.example" not in str(collector.spans)


async def test_a_request_of_several_events_is_linked_with_each_of_their_traces(
    surface: str, collector: Collector
) -> None:
    async with exported_spans(TracingSettings(endpoint=collector.url)):
        answer = await post(surface, "bulk-events", {"events": [an_event("ann"), an_event("bob")]})
    events = {UUID(result["eventId"]).bytes for result in answer["results"]}
    (request,) = collector.named("POST service-api/bulk-events")
    assert {link.trace_id for link in request.links} == events
    assert request.trace_id not in events
    roots = collector.named("event")
    assert {root.trace_id for root in roots} == events
    assert {root.links[0].span_id for root in roots} == {request.span_id}
    assert {span.trace_id for span in collector.named("database commit")} == events


async def test_a_mint_that_an_earlier_term_has_signed_keeps_its_traces(
    world: World, surface: str, collector: Collector
) -> None:
    async with exported_spans(TracingSettings(endpoint=collector.url)):
        answer = await post(surface, "manual-event", an_event("ann"))
        async with world.serving():
            await world.settled("published")
        async with world.serving():
            world.node.mine()
            await confirmed(world)
    (block,) = collector.named("block")
    assert block.trace_id == UUID(answer["eventId"]).bytes


async def test_a_collector_that_is_away_is_told_once_and_stops_nothing(
    surface: str, collector: Collector
) -> None:
    collector.is_away = True
    with capture_logs() as logs:
        async with exported_spans(TracingSettings(endpoint=collector.url)):
            for name in ("ann", "bob"):
                await post(surface, "manual-event", an_event(name))

                async def refused() -> bool:
                    return collector.refused > 0

                await until(refused)
    names = [line["event"] for line in logs if str(line["event"]).startswith("tracing.")]
    assert names == ["tracing.collector_away"]


async def test_without_the_setting_nothing_is_recorded(surface: str, collector: Collector) -> None:
    async with exported_spans(None):
        assert not tracing.is_on()
        await post(surface, "manual-event", an_event("ann"))
    assert collector.spans == []


async def test_a_ratio_picks_the_same_traces_in_every_process(
    surface: str, collector: Collector
) -> None:
    async with exported_spans(TracingSettings(endpoint=collector.url, ratio=1e-9)):
        await post(surface, "manual-event", an_event("ann"))
    assert collector.spans == []

"""The log leads from a request to the events that it recorded."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from structlog.testing import capture_logs

from ltzd.actions.event_handler.record import EventHandler
from ltzd.concurrency.request_ids import begin_request
from ltzd.dev.sandbox import Sandbox
from tests.support.surfaces.event_action import a_handler, a_request, sandbox

__all__ = ["sandbox"]


@pytest_asyncio.fixture
async def handler(database_url: str, sandbox: Sandbox) -> AsyncIterator[EventHandler]:
    async with a_handler(database_url, sandbox) as handler:
        yield handler


async def test_each_event_is_logged_with_the_request_that_recorded_it(
    handler: EventHandler,
) -> None:
    async def recorded(request_id: str, email: str) -> Any:
        begin_request(request_id)
        return (await handler.record(a_request(email))).event_id

    with capture_logs() as logs:
        ids = await asyncio.gather(
            *(recorded(f"r-{name}", f"{name}@shop.example") for name in ("ann", "bob"))
        )
    pairs = [pair for line in logs if line["event"] == "events.written" for pair in line["events"]]
    assert sorted(pairs, key=lambda pair: pair[1]) == [
        (str(ids[0]), "r-ann"),
        (str(ids[1]), "r-bob"),
    ]
    assert "shop.example" not in str(logs)

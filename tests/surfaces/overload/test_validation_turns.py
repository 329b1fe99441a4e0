"""However many bodies hold slow addresses, the event loop serves other requests between them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from ltzd.concurrency import work_slots
from ltzd.http.app import build_app
from ltzd.http.event_handler.domain_verification import VerifyDnsBody
from ltzd.http.event_handler.models import ManualEventBody
from ltzd.http.payments.models import CreateCheckoutBody
from ltzd.http.requests.validation_turns import ValidationTurns
from ltzd.http.services import HttpPolicy
from tests.support.loop_turns import LoopTurns, counted_turns
from tests.support.surfaces.http_surface import FakeEvents, services_over, serving

CLIENTS = 6
SLOW = [
    {"userEmail": "a@" + ".".join("中" * 60) + ".example"},
    {"userEmail": '"' + '\\"' * 31 + '"@shop.example'},
    {"userEmail": "a@" + "b." * 100 + "c"},
    {"userEmail": "a@shop.example", "domain": ".".join("ä" * 30) + ".example"},
    {"userEmail": "a@shop.example", "sourceUrl": "https://" + "xn--4ca." * 20 + "example"},
    {"userEmail": "a@shop.example", "userIdentifier": "ä@" + "ö." * 60 + "example"},
]
PLAIN = {"userEmail": "a@shop.example", "domain": "shop.example", "userIdentifier": "b@c.example"}


async def turns_of_validations(
    monkeypatch: pytest.MonkeyPatch, path: str, bodies: list[dict[str, Any]]
) -> list[int]:
    """The turns in which the bodies, sent all at once, were validated."""
    seen: list[int] = []

    def watch(model: type[Any], name: str, turns: LoopTurns) -> None:
        original = getattr(model, name)

        def watched(_model: type[Any], body: Mapping[str, Any]) -> Any:
            seen.append(turns.count)
            return original(body)

        monkeypatch.setattr(model, name, classmethod(watched))

    app = build_app(services_over(FakeEvents()), HttpPolicy())
    async with serving(app) as url, aiohttp.ClientSession(url) as client:
        with counted_turns() as turns:
            watch(ManualEventBody, "from_json", turns)
            watch(CreateCheckoutBody, "model_validate", turns)
            watch(VerifyDnsBody, "from_json", turns)

            async def send(body: dict[str, Any]) -> None:
                async with client.post(path, json=body) as answer:
                    assert answer.status < 500

            await asyncio.gather(*map(send, bodies))
    return seen


@pytest.mark.parametrize("texts", SLOW)
async def test_slow_addresses_and_names_of_many_events_are_validated_one_in_a_turn(
    monkeypatch: pytest.MonkeyPatch, texts: dict[str, str]
) -> None:
    turns = await turns_of_validations(
        monkeypatch, "/service-api/manual-event", [{"n": n, **texts} for n in range(CLIENTS)]
    )
    assert len(set(turns)) == len(turns) == CLIENTS


async def test_slow_addresses_of_many_bulks_are_validated_one_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = await turns_of_validations(
        monkeypatch, "/service-api/bulk-events", [{"events": SLOW}] * CLIENTS
    )
    assert len(set(turns)) == len(turns) == CLIENTS * len(SLOW)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/service-api/create-checkout", {"successUrl": "https://ä.ö"}),
        ("/service-api/verify-dns", {"domain": "ä.ö"}),
    ],
)
async def test_slow_names_of_other_requests_are_validated_one_in_a_turn(
    monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    turns = await turns_of_validations(monkeypatch, path, [body] * CLIENTS)
    assert len(set(turns)) == len(turns) == CLIENTS


async def test_plain_events_of_a_bulk_wait_for_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = await turns_of_validations(
        monkeypatch, "/service-api/bulk-events", [{"events": [PLAIN] * 20}]
    )
    assert len(turns) == 20
    assert len(set(turns)) == 1


class Slot:
    is_released = False

    def release(self) -> None:
        self.is_released = True


async def test_a_request_that_waits_long_for_its_turn_holds_no_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work_slots, "_SLOW_SECONDS", 0.0)
    turns, slots = ValidationTurns(), [Slot() for _ in range(20)]

    async def take(slot: Slot) -> None:
        work_slots.hold(slot)
        await turns.take()

    await asyncio.gather(*map(take, slots))
    assert slots[-1].is_released

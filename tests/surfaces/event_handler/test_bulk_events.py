"""bulk-events: up to fifty events in one request, each with an outcome of its own, in order."""

import asyncio
import json
from typing import Any

import pytest

from ltzd.dev.sandbox.faults import Fault
from ltzd.http.event_handler.bulk_models import BulkEventsResponse
from tests.support.surfaces.event_surface import (
    PREFIX,
    EventHandlerResponse,
    EventSurface,
    mint_hash,
    new_email,
    unlimited_rule,
)
from tests.support.surfaces.http_surface import a_surface

PATH = f"{PREFIX}/bulk-events"


async def bulk(surface: EventSurface, events: object, **headers: str) -> EventHandlerResponse:
    answer = await surface.ask("POST", PATH, {"events": events}, headers)
    if answer.status == 200:
        BulkEventsResponse.model_validate(answer.body)
    return answer


def statuses(answer: EventHandlerResponse) -> list[int]:
    """The status that each item would have had by itself; 200 for a success."""
    return [item.get("status") if not item["success"] else 200 for item in answer.body["results"]]


async def test_good_items_have_all_fields_of_a_lone_answer_in_input_order(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(
        unlimited_rule("form_submit", reward=10), unlimited_rule("other", reward=3)
    )
    emails = [new_email() for _ in range(4)]
    kinds = ["form_submit", "other", "other", "form_submit"]

    answer = await bulk(
        event_surface,
        [brand.body(email, eventType=kind) for email, kind in zip(emails, kinds, strict=True)],
    )

    assert (answer.status, answer.body["success"], answer.body["processed"]) == (200, True, 4)
    for index, item in enumerate(answer.body["results"]):
        ltz = 10 if kinds[index] == "form_submit" else 3
        wallet, mint = item["walletAddress"], mint_hash(item["eventId"])
        assert item == {
            "success": True,
            "index": index,
            "eventId": item["eventId"],
            "message": f"Event recorded; {ltz} LTZ distributed",
            "rewardAmount": ltz,
            "eventType": kinds[index],
            "walletCreated": True,
            "walletAddress": wallet,
            "transactionHash": mint,
            "status": "published",
            "reward": {
                "amount": ltz,
                "eventType": kinds[index],
                "walletAddress": wallet,
                "transactionHash": mint,
            },
        }
    assert len({item["eventId"] for item in answer.body["results"]}) == 4


async def test_a_bad_item_stops_no_other_and_says_what_it_would_have_said_alone(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(
        unlimited_rule(), unlimited_rule("limited", max_claims_per_user=1)
    )
    email = new_email()
    items: list[object] = [
        brand.body(),
        "no object",
        brand.body(userEmail=...),
        brand.body(domain="evil.example"),
        brand.body(eventType="unheard_of"),
        brand.body(email),
        brand.body(email.upper()),
        None,
        brand.body(brandId="0x" + "99" * 20),
        brand.body(),
    ]

    answer = await bulk(event_surface, items)

    assert (answer.body["success"], answer.body["processed"]) == (False, 3)
    assert statuses(answer) == [200, 400, 400, 403, 400, 200, 409, 400, 403, 200]
    results = answer.body["results"]
    assert [item["index"] for item in results] == list(range(10))
    assert results[1]["details"] == {"errors": ["events.1: must be an object"]}
    assert results[6]["details"] == {"existingEventId": results[5]["eventId"]}
    for index in (2, 3, 4, 8):
        alone = await event_surface.post(items[index])
        expected = alone.body | {"index": index, "status": alone.status}
        assert results[index] == expected
    assert await brand.events() == 3


async def test_items_are_decided_in_their_order(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        unlimited_rule(max_total_claims=3), duplicate_window_seconds=0
    )
    answer = await bulk(event_surface, [brand.body() for _ in range(6)])
    assert statuses(answer) == [200, 200, 200, 429, 429, 429]


async def test_a_users_items_are_claimed_one_after_the_other(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        unlimited_rule(max_claims_per_user=3), duplicate_window_seconds=0
    )
    email, other = new_email(), new_email()
    answer = await bulk(
        event_surface, [brand.body(user) for user in [email, other, email, email, email, other]]
    )
    assert statuses(answer) == [200, 200, 200, 200, 429, 200]
    new = [item.get("walletCreated") for item in answer.body["results"]]
    assert new == [True, True, False, False, None, False]


async def test_the_origin_of_the_request_serves_items_without_a_domain(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    items = [brand.body(domain=...), brand.body(domain="evil.example")]
    answer = await bulk(event_surface, items, Origin=f"https://{brand.domain}")
    assert statuses(answer) == [200, 403]
    assert answer.headers["Access-Control-Allow-Origin"] == f"https://{brand.domain}"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({}, "events: is required"),
        ({"events": None}, "events: must be an array"),
        ({"events": {}}, "events: must be an array"),
        ({"events": "[]"}, "events: must be an array"),
        ({"events": []}, "events: must hold at least 1"),
        ({"events": [1] * 51}, "events: must hold at most 50"),
    ],
)
async def test_what_is_no_list_of_1_to_50_is_refused_whole(
    event_surface: EventSurface, body: dict[str, Any], fault: str
) -> None:
    answer = await event_surface.ask("POST", PATH, body)
    assert (answer.status, answer.error, answer.faults) == (400, "Validation failed", [fault])


async def test_fifty_items_are_not_too_many(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    items = [brand.body(f"a{n}@b.example") for n in range(50)]
    assert len(json.dumps({"events": items})) < 10_240
    answer = await bulk(event_surface, items)
    assert (answer.body["processed"], await brand.events()) == (50, 50)


async def test_the_body_has_the_surfaces_limit_and_envelope(event_surface: EventSurface) -> None:
    large = await event_surface.ask("POST", PATH, b'{"events": ["' + b"x" * 10_240 + b'"]}')
    assert (large.status, large.body["success"]) == (413, False)
    broken = await event_surface.ask("POST", PATH, b'{"events": [')
    assert (broken.status, broken.body["success"]) == (400, False)
    wrong = await event_surface.ask("GET", PATH)
    assert (wrong.status, wrong.body["success"]) == (405, False)
    assert wrong.headers["Allow"] == "OPTIONS, POST"


async def test_hashes_that_do_not_come_are_waited_for_once(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule(reward=10))
    event_surface.is_publishing.clear()
    try:
        begun = asyncio.get_running_loop().time()
        answer = await bulk(event_surface, [brand.body() for _ in range(5)])
        seconds = asyncio.get_running_loop().time() - begun
    finally:
        event_surface.is_publishing.set()
    assert [item["status"] for item in answer.body["results"]] == ["queued"] * 5
    assert [item["transactionHash"] for item in answer.body["results"]] == [None] * 5
    assert answer.body["success"] is True
    assert 5.0 <= seconds < 8.0


async def test_an_identity_provider_that_is_away_fails_items_and_not_the_request(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    known = new_email()
    assert (await brand.post(known, eventType="form_submit")).status == 200
    await brand.let_time_pass(3600)
    event_surface.sandbox.faults.order("identity", Fault(times=1_000, status=503))
    try:
        answer = await bulk(event_surface, [brand.body(), brand.body(known)])
    finally:
        event_surface.sandbox.faults.order("identity", Fault(times=0))
    assert statuses(answer) == [500, 200]
    assert answer.body["results"][0] == {
        "success": False,
        "error": "Identity provider unavailable",
        "index": 0,
        "status": 500,
        "retryAfter": 5,
    }
    assert await brand.events() == 2


async def test_an_item_says_when_to_repeat_it_as_its_event_by_itself_would(
    event_surface: EventSurface,
) -> None:
    cooling = unlimited_rule("daily", cooldown_hours=1)
    brand = await event_surface.brand(cooling)
    email = new_email()
    assert (await brand.post(email, eventType="daily")).status == 200
    await brand.let_time_pass(61)
    answer = await bulk(event_surface, [brand.body(email, eventType="daily")])
    (item,) = answer.body["results"]
    alone = await brand.post(email, eventType="daily")
    assert (item["status"], alone.status) == (429, 429)
    assert 0 <= item["retryAfter"] - int(alone.headers["Retry-After"]) <= 2


async def test_an_item_that_fails_inside_is_a_500_item_that_tells_nothing() -> None:
    async with a_surface() as surface:
        surface.events.refusal = RuntimeError("secret row")
        body = {"events": [{"brandId": "0x" + "ab" * 20, "eventType": "a", "userEmail": "a@b.cd"}]}
        async with surface.client.post(surface.url + PATH, json=body) as answer:
            assert answer.status == 200
            text = await answer.text()
        assert "secret" not in text
        (item,) = json.loads(text)["results"]
        assert item == {
            "success": False,
            "error": "Internal server error",
            "index": 0,
            "status": 500,
        }

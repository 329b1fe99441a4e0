"""The event handler's reads: event-config, events, health, diagnostic, debug."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from ltzd.http.event_handler import models
from ltzd.http.event_handler.errors import EventHandlerError
from ltzd.values import checksummed
from tests.support.surfaces.event_surface import (
    EventHandlerResponse,
    EventSurface,
    mint_hash,
    new_email,
    unlimited_rule,
)
from tests.support.waiting import until


def assert_recent(text: object) -> None:
    """An ISO 8601 time in UTC, about now."""
    assert isinstance(text, str)
    assert text.endswith("Z")
    age = datetime.now(UTC) - datetime.fromisoformat(text)
    assert abs(age) < timedelta(seconds=10)


# --- event-config ------------------------------------------------------------------------------


async def configuration(surface: EventSurface, query: str) -> EventHandlerResponse:
    answer = await surface.get(f"/event-config{query}")
    if answer.status == 200:
        models.EventConfigResponse.model_validate(answer.body)
    else:
        EventHandlerError.model_validate(answer.body)
    return answer


async def test_the_configuration_has_exactly_the_fields_of_2_3(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        {
            "type": "account_creation",
            "reward": 150,
            "cooldown_hours": 0.5,
            "max_claims_per_user": -1,
            "max_total_claims": 500,
            "detection_method": "url_pattern",
            "url_patterns": ["/welcome", "/hi"],
            "success_selectors": ["#done"],
        },
        {"type": "form_submit", "enabled": False},
        {"type": "custom_chat", "reward": 0, "cooldown_hours": 0, "channels": ["lounge"]},
        {"type": "purchase", "reward_per_dollar": 2.5, "max_claims_per_user": 999_999},
        {"type": "referral", "reward": 1_000, "max_claims_per_user": 3},
        {"type": "community_hour", "reward": 5},
    )
    answer = await configuration(event_surface, f"?brandId={brand.id}")

    assert answer.status == 200
    assert set(answer.body) == {"success", "brandId", "events", "count"}
    assert (answer.body["success"], answer.body["brandId"]) == (True, brand.id)
    events = {event["eventType"]: event for event in answer.body["events"]}
    assert answer.body["count"] == len(answer.body["events"]) == len(events)
    assert set(events) == {
        *("account_creation", "complete_survey", "newsletter_subscribe", "rate_experience"),
        *("subscribe_renewal", "custom_chat", "purchase", "referral", "community_hour"),
    }
    assert events["account_creation"] == {
        "eventId": "account_creation",
        "eventType": "account_creation",
        "rewardAmount": 150,
        "maxClaims": -1,
        "cooldownHours": 0.5,
        "detectionMethod": "url_pattern",
        "detectionConfig": {
            "urlPatterns": ["/welcome", "/hi"],
            "successSelectors": ["#done"],
            "channels": [],
        },
        "isCustom": False,
    }
    assert events["custom_chat"]["isCustom"] is True
    assert events["custom_chat"]["eventId"] == "custom_chat"
    assert events["custom_chat"]["detectionConfig"]["channels"] == ["lounge"]
    assert (events["custom_chat"]["cooldownHours"], events["custom_chat"]["rewardAmount"]) == (0, 0)
    assert (events["purchase"]["rewardAmount"], events["purchase"]["maxClaims"]) == (2.5, 999_999)
    assert (events["referral"]["maxClaims"], events["referral"]["isCustom"]) == (3, False)
    custom = {kind for kind, event in events.items() if event["isCustom"]}
    assert custom == {"custom_chat", "community_hour"}, "all that is in neither catalogue of 2.4"
    survey = events["complete_survey"]
    assert (survey["rewardAmount"], survey["maxClaims"], survey["cooldownHours"]) == (75, 1, 24)
    assert "max_total_claims" not in answer.raw.decode()


async def test_a_configuration_may_be_cached_five_minutes_and_a_refusal_not(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    answer = await configuration(event_surface, f"?brandId={brand.id}")
    assert answer.headers["Cache-Control"] == "public, max-age=300"
    assert answer.headers["Vary"] == "Origin"
    for query in ("", "?brandId=", "?brandId=0x", "?brandId=0x" + "fe" * 20):
        refused = await configuration(event_surface, query)
        assert "max-age" not in refused.headers.get("Cache-Control", "")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("?brandId=", 400),
        ("?brandid=0x" + "fe" * 20, 400),
        ("?brandId=0x" + "FE" * 20, 400),
        ("?brandId=0x" + "fe" * 19, 400),
        ("?brandId=%00", 400),
        ("?brandId=%ff%fe", 400),
        ("?brandId[]=x", 400),
        ("?brandId=0x" + "fe" * 20, 404),
        ("?brandId=0x" + "fe" * 20 + "&brandId=x", 400),
        ("?brandId=0x" + "fe" * 20 + "&brandId=", 400),
        ("?brandId=0x" + "fe" * 20 + "&brandId=0x" + "fe" * 20, 400),
        ("?brandId=0x" + "fe" * 20 + "%00%1f", 404),
        ("?%ff=%ff&brandId=0x" + "fe" * 20, 404),
    ],
)
async def test_a_configuration_wants_a_brand_that_there_is(
    event_surface: EventSurface, query: str, status: int
) -> None:
    answer = await configuration(event_surface, query)
    assert answer.status == status, answer.body
    if status == 400:
        assert [fault.partition(":")[0] for fault in answer.faults] == ["brandId"]


async def test_a_changed_configuration_is_shown_within_a_second(
    event_surface: EventSurface,
) -> None:
    """Another process applied it, so that this one learns of it from the database."""
    brand = await event_surface.brand(unlimited_rule(reward=1))
    text = json.dumps(brand.brand.model_dump(mode="json") | {"events": [unlimited_rule(reward=2)]})
    await event_surface.value(
        """
        WITH changed AS (
          UPDATE brands SET configuration = $2::text::jsonb, revision = nextval('brand_revisions')
           WHERE id = $1)
        SELECT pg_notify('ltzd_brands', 'elsewhere')
        """,
        brand.brand.address,
        text,
    )

    async def shown() -> bool:
        answer = await configuration(event_surface, f"?brandId={brand.id}")
        rewards = {event["eventType"]: event["rewardAmount"] for event in answer.body["events"]}
        return bool(rewards["form_submit"] == 2)

    await until(shown, 1.0)


# --- events ------------------------------------------------------------------------------------


async def test_an_event_tells_its_fields_and_no_email(event_surface: EventSurface) -> None:
    brand = await event_surface.brand()
    email = new_email()
    recorded = await brand.post(email, userIdentifier=email, metadata={"note": email})
    wallet = await event_surface.value(
        "SELECT wallet FROM rewards WHERE id = $1", UUID(recorded.event_id)
    )
    answer = await event_surface.get(f"/events/{recorded.event_id}")
    assert answer.status == 200
    assert_recent(answer.body["createdAt"])
    # No lane writes attempts here, so the row knows no hash yet.
    assert answer.body == {
        "success": True,
        "eventId": recorded.event_id,
        "eventType": "form_submit",
        "status": "queued",
        "rewardAmount": 10,
        "walletAddress": checksummed(wallet),
        "transactionHash": None,
        "blockNumber": None,
        "createdAt": answer.body["createdAt"],
    }
    assert email.encode() not in answer.raw
    assert recorded.body["transactionHash"] == mint_hash(recorded.event_id)


async def test_an_event_may_be_asked_for_in_capital_letters(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    recorded = await brand.post()
    answer = await event_surface.get(f"/events/{recorded.event_id.upper()}")
    assert (answer.status, answer.body["eventId"]) == (200, recorded.event_id)


NO_UUIDS = [
    *("x", "0", "%20", "%00", "%ff", "%F0%9F%98%80", "..%2f"),
    "3f2504e04f8941d39a0c0305e82c3301",
    "{3f2504e0-4f89-41d3-9a0c-0305e82c3301}",
    "urn:uuid:3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "3f2504e0-4f89-41d3-9a0c-0305e82c33010",
    "3f2504e0_4f89_41d3_9a0c_0305e82c3301",
]


@pytest.mark.parametrize("text", NO_UUIDS)
async def test_what_is_no_uuid_is_400(event_surface: EventSurface, text: str) -> None:
    answer = await event_surface.get(f"/events/{text}")
    assert answer.status == 400, answer
    assert answer.body["details"] == {"errors": ["eventId: must be a UUID"]}


@pytest.mark.parametrize(
    "text", ["0" * 8 + "-0000-0000-0000-" + "0" * 12, "6f1c0e52-7a45-4c0e-9f5e-2b8f4d1c9a37"]
)
async def test_an_unknown_event_is_404(event_surface: EventSurface, text: str) -> None:
    answer = await event_surface.get(f"/events/{text}")
    assert (answer.status, answer.body) == (404, {"success": False, "error": "Event not found"})


# --- health, diagnostic, debug -----------------------------------------------------------------


async def until_healthy(event_surface: EventSurface) -> None:
    """Another test may have left the provider's outage behind, which its next answer ends."""
    brand = await event_surface.brand(unlimited_rule())

    async def is_healthy() -> bool:
        await brand.post()
        return bool((await event_surface.get("/health")).body["status"] == "healthy")

    await until(is_healthy)


async def test_while_all_is_well_every_service_is_connected(event_surface: EventSurface) -> None:
    """Also an hour after the last block of a chain that mines on demand."""
    await event_surface.value("UPDATE chains SET updated_at = now() - interval '1 hour'")
    await until_healthy(event_surface)
    health = await event_surface.get("/health")
    assert (health.status, health.body["status"]) == (200, "healthy"), health.body
    assert set(health.body) == {"status", "timestamp", "services"}
    connected = dict.fromkeys(("database", "blockchain", "identity-provider"), "connected")
    assert health.body["services"] == connected
    assert_recent(health.body["timestamp"])

    diagnostic = await event_surface.get("/diagnostic")
    assert diagnostic.status == 200
    assert_recent(diagnostic.body["timestamp"])
    expected = connected | {"status": "healthy", "timestamp": diagnostic.body["timestamp"]}
    assert diagnostic.body == expected


async def test_a_node_or_provider_that_is_away_is_told_while_events_are_taken(
    own_event_surface: EventSurface,
) -> None:
    surface = own_event_surface
    brand = await surface.brand(unlimited_rule())

    async def says(word: str, **states: str) -> None:
        async def is_so() -> bool:
            health = await surface.get("/health")
            services: dict[str, Any] = health.body["services"]
            return (health.status, health.body["status"]) == (200, word) and all(
                services[name.replace("_", "-")] == state for name, state in states.items()
            )

        await until(is_so)

    surface.node.is_down = True
    await says("degraded", blockchain="unavailable", database="connected")
    assert (await brand.post()).status == 200
    surface.node.is_down = False
    await says("healthy", blockchain="connected")
    fault = {"service": "identity", "drop": True, "times": 1000}
    async with surface.http.post(
        surface.sandbox.control_endpoints()["faultUrl"], json=fault
    ) as ordered:
        assert ordered.status == 200
    await says("degraded", identity_provider="unavailable")
    assert (await surface.get("/debug")).status == 200


async def test_debug_tells_the_request_and_nothing_of_the_machine(
    event_surface: EventSurface,
) -> None:
    answer = await event_surface.get("/debug?brandId=secret", Host="shop.example:81")
    assert answer.status == 200
    assert isinstance(answer.body["debug"], str)
    assert_recent(answer.body["timestamp"])
    assert answer.body == {
        "debug": answer.body["debug"],
        "hostname": "shop.example:81",
        "path": "/service-api/debug",
        "method": "GET",
        "timestamp": answer.body["timestamp"],
        "worker_version": "v2.0.0",
    }


@pytest.mark.parametrize("path", ["/health", "/diagnostic", "/debug", "/event-config"])
async def test_head_is_get_without_a_body(event_surface: EventSurface, path: str) -> None:
    got, head = await asyncio.gather(
        event_surface.get(path), event_surface.ask("HEAD", f"/service-api{path}")
    )
    assert (head.status, head.raw) == (got.status, b"")
    assert head.headers["Content-Type"] == "application/json"

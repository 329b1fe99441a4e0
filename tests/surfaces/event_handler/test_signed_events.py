"""With `signed_bypass` only the brand's signature lifts cooldown and maxima; types with `signed`
need one."""

import asyncio
import json
import time
from collections import Counter
from typing import Any
from uuid import uuid4

import pytest

from ltzd.rules.request_signatures import signature
from ltzd.store.brands import keys as brand_keys
from ltzd.store.database import transaction
from tests.support.surfaces.event_surface import (
    PREFIX,
    EventHandlerResponse,
    EventSurface,
    LiveBrand,
    new_email,
    unlimited_rule,
)

PATH = f"{PREFIX}/manual-event"
BULK = f"{PREFIX}/bulk-events"


async def a_signing_brand(surface: EventSurface, **changes: Any) -> LiveBrand:
    return await surface.brand(
        unlimited_rule(cooldown_hours=24, max_claims_per_user=1),
        signed_bypass=True,
        duplicate_window_seconds=0,
        **changes,
    )


def headers(
    brand: LiveBrand,
    body: bytes,
    *,
    path: str = PATH,
    method: str = "POST",
    key: str | None = None,
    nonce: str | None = None,
    age: float = 0,
) -> dict[str, str]:
    timestamp = str(int(time.time() - age))
    nonce = nonce or uuid4().hex
    made = signature(key or brand.keys.security_key, timestamp, nonce, method, path.encode(), body)
    return {
        "X-LTZ-Brand-Id": brand.id,
        "X-LTZ-Timestamp": timestamp,
        "X-LTZ-Nonce": nonce,
        "X-LTZ-Signature": made,
    }


def raw(brand: LiveBrand, email: str, **metadata: object) -> bytes:
    return json.dumps(brand.body(email, metadata=metadata)).encode()


async def post(surface: EventSurface, body: bytes, signed: dict[str, str]) -> EventHandlerResponse:
    return await surface.ask("POST", PATH, body, signed)


async def test_unsigned_wishes_are_not_granted_and_the_event_is_a_normal_one(
    event_surface: EventSurface,
) -> None:
    brand = await a_signing_brand(event_surface)
    email = new_email()
    assert (await brand.post(email, metadata={"source": "voice_claim"})).status == 200
    for metadata in ({"source": "voice_claim"}, {"source": "gateway_event"}):
        answer = await brand.post(email, metadata=metadata)
        assert (answer.status, answer.error) == (429, "Max claims reached")

    cooling = await event_surface.brand(
        unlimited_rule(cooldown_hours=1), signed_bypass=True, duplicate_window_seconds=0
    )
    assert (await cooling.post(email)).status == 200
    answer = await cooling.post(email, metadata={"skip_cooldown": True})
    assert (answer.status, answer.error) == (429, "Cooldown active")


async def test_a_signature_grants_them(event_surface: EventSurface) -> None:
    brand = await a_signing_brand(event_surface)
    email = new_email()
    for _ in range(3):
        body = raw(brand, email, source="voice_claim")
        assert (await post(event_surface, body, headers(brand, body))).status == 200
    cooling = await event_surface.brand(
        unlimited_rule(cooldown_hours=1), signed_bypass=True, duplicate_window_seconds=0
    )
    for _ in range(2):
        body = raw(cooling, email, skip_cooldown=True)
        assert (await post(event_surface, body, headers(cooling, body))).status == 200


async def test_a_signed_event_obeys_the_global_maximum_and_duplicates(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule(max_total_claims=2), signed_bypass=True)
    email = new_email()
    answers = []
    for address in (email, email, new_email(), new_email()):
        body = raw(brand, address, source="voice_claim")
        answers.append(await post(event_surface, body, headers(brand, body)))
    assert [answer.status for answer in answers] == [200, 409, 200, 429]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"key": "ltzsk_" + "0" * 40}, "The request is not signed by this brand"),
        ({"path": BULK}, "The request is not signed by this brand"),
        ({"method": "PUT"}, "The request is not signed by this brand"),
        ({"age": 302}, "X-LTZ-Timestamp is more than 300 seconds off"),
        ({"age": -302}, "X-LTZ-Timestamp is more than 300 seconds off"),
        ({"nonce": "short"}, "X-LTZ-Nonce must be 16 to 64 letters, digits, _ and -"),
    ],
)
async def test_who_signs_must_sign_right(
    event_surface: EventSurface, changes: dict[str, Any], error: str
) -> None:
    brand = await a_signing_brand(event_surface)
    body = raw(brand, new_email())
    answer = await post(event_surface, body, headers(brand, body, **changes))
    assert (answer.status, answer.body) == (401, {"success": False, "error": error})
    assert answer.headers["WWW-Authenticate"] == "LTZ-HMAC"
    assert await brand.events() == 0


@pytest.mark.parametrize(
    "name", ["X-LTZ-Brand-Id", "X-LTZ-Timestamp", "X-LTZ-Nonce", "X-LTZ-Signature"]
)
async def test_a_missing_header_is_a_wrong_signature(
    event_surface: EventSurface, name: str
) -> None:
    brand = await a_signing_brand(event_surface)
    body = raw(brand, new_email())
    signed = headers(brand, body)
    del signed[name]
    assert (await post(event_surface, body, signed)).status == 401


async def test_a_changed_body_and_another_brands_key_are_refused(
    event_surface: EventSurface,
) -> None:
    brand, thief = await a_signing_brand(event_surface), await a_signing_brand(event_surface)
    body = raw(brand, new_email())
    signed = headers(brand, body)
    assert (await post(event_surface, body + b" ", signed)).status == 401
    signed = headers(brand, body, key=thief.keys.security_key)
    assert (await post(event_surface, body, signed)).status == 401
    signed = headers(thief, body)
    assert (await post(event_surface, body, signed)).status == 401
    assert await brand.events() == 0


async def test_a_signed_request_is_good_once(event_surface: EventSurface) -> None:
    brand = await a_signing_brand(event_surface)
    body = raw(brand, new_email(), source="voice_claim")
    signed = headers(brand, body)
    assert (await post(event_surface, body, signed)).status == 200
    replayed = await post(event_surface, body, signed)
    assert (replayed.status, replayed.error) == (401, "X-LTZ-Nonce was used before")
    assert await brand.events() == 1


async def test_of_a_signed_request_sent_fifty_times_at_once_one_counts(
    event_surface: EventSurface,
) -> None:
    brand = await a_signing_brand(event_surface)
    body = raw(brand, new_email(), source="voice_claim")
    signed = headers(brand, body)
    answers = await asyncio.gather(*(post(event_surface, body, signed) for _ in range(50)))
    assert Counter(answer.status for answer in answers) == {200: 1, 401: 49}
    assert await brand.events() == 1


async def test_a_refused_request_has_not_used_its_nonce(event_surface: EventSurface) -> None:
    brand = await a_signing_brand(event_surface)
    email = new_email()
    assert (await brand.post(email)).status == 200
    body = raw(brand, email)  # signed, but without a bypass source
    signed = headers(brand, body)
    assert (await post(event_surface, body, signed)).status == 429
    await brand.let_time_pass(25 * 3600)
    await brand.change(unlimited_rule(max_claims_per_user=2, cooldown_hours=24))
    assert (await post(event_surface, body, signed)).status == 200


async def test_a_brand_that_asks_for_no_signature_ignores_one(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    body = raw(brand, new_email())
    assert (await post(event_surface, body, headers(brand, body, key="wrong"))).status == 200


async def test_one_signature_covers_all_items_of_a_bulk_request(
    event_surface: EventSurface,
) -> None:
    brand = await a_signing_brand(event_surface)
    email = new_email()
    items = [brand.body(email, metadata={"source": "voice_claim"}) for _ in range(3)]
    body = json.dumps({"events": [*items, brand.body()]}).encode()
    signed = headers(brand, body, path=BULK)

    first = await event_surface.ask("POST", BULK, body, signed)
    assert first.body["processed"] == 4
    again = await event_surface.ask("POST", BULK, body, signed)
    assert [item["status"] for item in again.body["results"]] == [401] * 4


async def test_after_a_rotation_the_new_key_signs_and_the_old_one_still_does(
    event_surface: EventSurface,
) -> None:
    brand = await a_signing_brand(event_surface)
    async with transaction(event_surface.daemon.pools.http) as connection:
        rotation = await brand_keys.rotate(
            connection, brand.brand.address, "security_key", event_surface.sealer, revoke=False
        )
    await event_surface.refresh()
    for key in (rotation.key, brand.keys.security_key):
        body = raw(brand, new_email())
        assert (await post(event_surface, body, headers(brand, body, key=key))).status == 200


# --- signed types ------------------------------------------------------------------------------


async def a_brand_with_signed_purchases(surface: EventSurface, **changes: Any) -> LiveBrand:
    return await surface.brand(
        {"type": "purchase", "reward_per_dollar": 2, "cooldown_hours": 1, "signed": True},
        unlimited_rule("custom_a"),
        **changes,
    )


def purchase(brand: LiveBrand, email: str, amount: str, **changes: object) -> bytes:
    metadata = {"amount": amount} | changes
    return json.dumps(brand.body(email, eventType="purchase", metadata=metadata)).encode()


async def test_a_strangers_purchase_of_a_cent_leaves_a_customer_every_limit(
    event_surface: EventSurface,
) -> None:
    brand = await a_brand_with_signed_purchases(event_surface)
    email = new_email()
    by_stranger = await event_surface.post(purchase(brand, email, "0.01"))
    assert (by_stranger.status, by_stranger.error) == (
        401,
        "Events of type purchase must be signed by the brand: X-LTZ headers are missing",
    )
    assert by_stranger.headers["WWW-Authenticate"] == "LTZ-HMAC"
    wrongly_signed = purchase(brand, email, "0.01")
    with_a_foreign_key = headers(brand, wrongly_signed, key="ltzsk_" + "0" * 40)
    assert (await post(event_surface, wrongly_signed, with_a_foreign_key)).status == 401
    assert await brand.events() == 0

    body = purchase(brand, email, "50")
    by_shop = await post(event_surface, body, headers(brand, body))
    assert (by_shop.status, by_shop.body["rewardAmount"]) == (200, 100)


async def test_a_signed_type_is_asked_for_before_anything_is_told_about_the_user(
    event_surface: EventSurface,
) -> None:
    brand = await a_brand_with_signed_purchases(event_surface)
    known, unknown = new_email(), new_email()
    body = purchase(brand, known, "50")
    assert (await post(event_surface, body, headers(brand, body))).status == 200
    answers = [await event_surface.post(purchase(brand, each, "1")) for each in (known, unknown)]
    assert [answer.status for answer in answers] == [401, 401]
    assert answers[0].body == answers[1].body


async def test_a_signed_purchase_is_rewarded_once_however_often_it_is_sent(
    event_surface: EventSurface,
) -> None:
    brand = await a_brand_with_signed_purchases(event_surface, duplicate_window_seconds=0)
    body = purchase(brand, new_email(), "50", skip_cooldown=True)
    signed = headers(brand, body)
    answers = await asyncio.gather(*(post(event_surface, body, signed) for _ in range(20)))
    assert Counter(answer.status for answer in answers) == {200: 1, 401: 19}
    assert await brand.events() == 1


async def test_other_types_of_the_brand_need_no_signature(event_surface: EventSurface) -> None:
    brand = await a_brand_with_signed_purchases(event_surface)
    assert (await brand.post(eventType="custom_a")).status == 200


async def test_in_a_bulk_request_only_the_items_of_a_signed_type_need_the_signature(
    event_surface: EventSurface,
) -> None:
    brand = await a_brand_with_signed_purchases(event_surface)
    items = [
        json.loads(purchase(brand, new_email(), "5")),
        brand.body(new_email(), eventType="custom_a"),
    ]
    body = json.dumps({"events": items}).encode()
    unsigned = await event_surface.ask("POST", BULK, body, {})
    assert unsigned.body["results"][0]["status"] == 401
    assert [item["success"] for item in unsigned.body["results"]] == [False, True]
    items[1]["userEmail"] = new_email()
    body = json.dumps({"events": items}).encode()
    signed = await event_surface.ask("POST", BULK, body, headers(brand, body, path=BULK))
    assert [item["success"] for item in signed.body["results"]] == [True, True]

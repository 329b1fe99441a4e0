"""The brand's own limits over HTTP: budget, rewards, wallets, addresses, signatures."""

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

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

EVENT = f"{PREFIX}/manual-event"
BULK = f"{PREFIX}/bulk-events"
DAY = 24 * 3600
PAID = unlimited_rule(reward=100)


def assert_limited(answer: EventHandlerResponse, reason: str, most_seconds: float) -> int:
    """A 429 that ends with time. Returns when."""
    assert answer.status == 429, answer.body
    assert answer.details["reason"] == reason
    assert isinstance(answer.details["message"], str)
    seconds = int(answer.headers["Retry-After"])
    assert 0 < seconds <= most_seconds
    return seconds


def assert_rate_headers(answer: EventHandlerResponse, limit: int) -> None:
    """Spec 8: the limit, nothing left, and the end of the window in Unix seconds."""
    assert answer.headers["X-RateLimit-Limit"] == str(limit)
    assert answer.headers["X-RateLimit-Remaining"] == "0"
    reset = int(answer.headers["X-RateLimit-Reset"]) - time.time()
    assert abs(reset - int(answer.headers["Retry-After"])) < 3


def seconds_to_midnight(zone: str) -> float:
    now = datetime.now(ZoneInfo(zone))
    tomorrow = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return (tomorrow.astimezone(UTC) - now.astimezone(UTC)).total_seconds()


def statuses(answer: EventHandlerResponse) -> list[int]:
    assert answer.status == 200, answer.body
    return [item["status"] if not item["success"] else 200 for item in answer.body["results"]]


async def bulk(surface: EventSurface, items: list[Any], **headers: str) -> EventHandlerResponse:
    return await surface.ask("POST", BULK, {"events": items}, headers)


# --- daily_mint_budget -------------------------------------------------------------------------


async def test_a_spent_budget_is_429_until_the_brands_next_day(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        PAID, unlimited_rule("small", reward=50), daily_mint_budget=250
    )
    assert [(await brand.post()).status for _ in range(2)] == [200, 200]

    refused = await brand.post()
    seconds = assert_limited(refused, "budget_exhausted", DAY)
    assert abs(seconds - seconds_to_midnight("UTC")) < 5
    assert set(refused.body) == {"success", "error", "details"}
    assert (await brand.post(eventType="small")).status == 200, "what still fits is paid"
    assert (await brand.post(eventType="small")).status == 429
    assert await brand.events() == 3

    await brand.let_time_pass(DAY)
    assert (await brand.post()).status == 200


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles", "Asia/Kolkata"])
async def test_the_day_is_the_brands_own(event_surface: EventSurface, zone: str) -> None:
    brand = await event_surface.brand(PAID, daily_mint_budget=100, time_zone=zone)
    await brand.post()
    seconds = assert_limited(await brand.post(), "budget_exhausted", DAY + 3600)
    assert abs(seconds - seconds_to_midnight(zone)) < 5


async def test_a_budget_holds_exactly_when_all_come_at_once(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        PAID, unlimited_rule("small", reward=30), daily_mint_budget=1_000
    )
    answers = await asyncio.gather(
        *(brand.post(eventType="small" if number % 3 else "form_submit") for number in range(60))
    )
    spent = sum(answer.body["rewardAmount"] for answer in answers if answer.status == 200)
    assert Counter(answer.status for answer in answers).keys() == {200, 429}
    assert 970 < spent <= 1_000
    owed = await event_surface.value(
        "SELECT sum(ltz)::bigint FROM rewards WHERE brand_id = $1", brand.brand.address
    )
    assert owed == spent


async def test_only_paid_events_of_the_brand_itself_use_its_budget(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(
        PAID,
        unlimited_rule("nothing"),
        unlimited_rule("once", reward=100, max_total_claims=0),
        daily_mint_budget=100,
    )
    other = await event_surface.brand(PAID, daily_mint_budget=100)
    assert (await brand.post(eventType="once")).status == 429
    assert (await other.post()).status == 200
    email = new_email()
    assert (await brand.post(email)).status == 200
    assert (await brand.post(email)).status == 409
    assert (await brand.post()).status == 429
    assert (await brand.post(eventType="nothing")).status == 200


async def test_bypass_sources_obey_the_budget(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(PAID, daily_mint_budget=100)
    bypass = {"source": "voice_claim", "skip_cooldown": True}
    assert (await brand.post(metadata=bypass)).status == 200
    assert_limited(await brand.post(metadata=bypass), "budget_exhausted", DAY)


async def test_a_changed_budget_holds_for_the_day_that_is_under_way(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(PAID, unlimited_rule("nothing"), daily_mint_budget=200)
    assert [(await brand.post()).status for _ in range(3)] == [200, 200, 429]
    await brand.change(daily_mint_budget=300)
    assert [(await brand.post()).status for _ in range(2)] == [200, 429]
    await brand.change(daily_mint_budget=100)
    assert (await brand.post()).status == 429
    assert (await brand.post(eventType="nothing")).status == 200
    await brand.change(daily_mint_budget=0)
    assert (await brand.post()).status == 200


async def test_the_cooldown_answers_before_the_budget(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        unlimited_rule(reward=100, cooldown_hours=1),
        unlimited_rule("capped", reward=100, max_total_claims=1),
    )
    email = new_email()
    await brand.post(email)
    await brand.post(eventType="capped")
    await brand.let_time_pass(60)
    await brand.change(daily_mint_budget=1)
    assert (await brand.post(email)).details["reason"] == "cooldown"
    assert (await brand.post(eventType="capped")).details["reason"] == "max_claims_reached"
    assert_limited(await brand.post(), "budget_exhausted", DAY)


# --- max_reward_per_event ----------------------------------------------------------------------


async def test_a_reward_over_the_maximum_is_400_and_makes_no_wallet(
    event_surface: EventSurface,
) -> None:
    purchase = {"type": "purchase", "reward_per_dollar": 2, "max_claims_per_user": -1}
    brand = await event_surface.brand(PAID, purchase, max_reward_per_event=99)
    users = await event_surface.count("users")
    for changes in (
        {},
        {"eventType": "purchase", "metadata": {"amount": 50}},
        {"metadata": {"source": "voice_claim"}},
    ):
        answer = await brand.post(**changes)
        assert answer.status == 400
        assert answer.error
        assert "Retry-After" not in answer.headers
    assert await event_surface.count("users") == users
    within = await brand.post(eventType="purchase", metadata={"amount": "49.99"})
    assert (within.status, within.body["rewardAmount"]) == (200, 99)


# --- max_new_wallets_per_hour ------------------------------------------------------------------


async def test_new_wallets_are_limited_by_the_hour_and_known_users_are_not(
    event_surface: EventSurface,
) -> None:
    stranger = await event_surface.brand(unlimited_rule())
    known_elsewhere = new_email()
    await stranger.post(known_elsewhere)
    brand = await event_surface.brand(
        unlimited_rule(), unlimited_rule("custom_b"), max_new_wallets_per_hour=3
    )
    emails = [new_email() for _ in range(3)]
    assert [(await brand.post(email)).status for email in emails] == [200] * 3

    refused = await brand.post()
    seconds = assert_limited(refused, "rate_limited", 3600)
    assert abs(seconds - (3600 - time.time() % 3600)) < 5
    assert_rate_headers(refused, 3)
    assert (await brand.post(known_elsewhere)).status == 200
    assert (await brand.post(emails[0], eventType="custom_b")).status == 200
    assert (await stranger.post()).status == 200

    await brand.let_time_pass(3600)
    assert (await brand.post()).status == 200


async def test_new_wallets_hold_exactly_when_all_come_at_once(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule(), max_new_wallets_per_hour=5)
    answers = await asyncio.gather(*(brand.post() for _ in range(40)))
    assert Counter(answer.status for answer in answers) == {200: 5, 429: 35}
    assert sum(answer.body.get("walletCreated", False) for answer in answers) == 5
    for answer in answers:
        if answer.status == 429:
            assert_limited(answer, "rate_limited", 3600)


async def test_a_refused_newcomer_is_let_in_once_another_brand_has_met_him(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule(), max_new_wallets_per_hour=1)
    other = await event_surface.brand(unlimited_rule())
    await brand.post()
    email = new_email()
    assert (await brand.post(email)).status == 429
    assert (await other.post(email)).body["walletCreated"] is True
    answer = await brand.post(email)
    assert (answer.status, answer.body["walletCreated"]) == (200, False)


async def test_events_of_one_newcomer_use_one_wallet_of_the_hour(
    event_surface: EventSurface,
) -> None:
    kinds = [f"type_{number}" for number in range(10)]
    brand = await event_surface.brand(
        *(unlimited_rule(kind) for kind in kinds), max_new_wallets_per_hour=1
    )
    email = new_email()
    answers = await asyncio.gather(*(brand.post(email, eventType=kind) for kind in kinds))
    assert [answer.status for answer in answers] == [200] * 10
    assert sum(answer.body["walletCreated"] for answer in answers) == 1
    assert (await brand.post()).status == 429


# --- events_per_minute_per_ip ------------------------------------------------------------------


async def test_events_of_one_address_are_limited_by_the_minute(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        unlimited_rule(), unlimited_rule("custom_b"), events_per_minute_per_ip=3
    )
    other = await event_surface.brand(unlimited_rule(), events_per_minute_per_ip=3)
    assert [(await brand.post()).status for _ in range(3)] == [200] * 3
    refused = await brand.post()
    assert_limited(refused, "rate_limited", 60)
    assert_rate_headers(refused, 3)
    assert_limited(await brand.post(eventType="custom_b"), "rate_limited", 60)
    assert_limited(await brand.post(metadata={"source": "voice_claim"}), "rate_limited", 60)
    assert (await other.post()).status == 200
    assert await brand.events() == 3


async def test_headers_that_anybody_can_send_give_no_second_minute(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule(), events_per_minute_per_ip=1)
    await brand.post()
    for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP", "CF-Connecting-IP"):
        answer = await brand.post(headers={name: "203.0.113.9"})
        assert_limited(answer, "rate_limited", 60)


async def test_the_address_is_asked_after_the_cooldown(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule(cooldown_hours=1), events_per_minute_per_ip=1)
    email = new_email()
    first = await brand.post(email)
    assert (await brand.post(email)).details == {"existingEventId": first.event_id}
    await brand.let_time_pass(60)
    assert (await brand.post(email)).details["reason"] == "cooldown"
    assert_limited(await brand.post(), "rate_limited", 60)


async def test_events_at_once_of_one_address_pass_up_to_its_limit(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule(), events_per_minute_per_ip=7)
    answers = await asyncio.gather(*(brand.post() for _ in range(30)))
    assert Counter(answer.status for answer in answers) == {200: 7, 429: 23}


# --- signed_bypass -----------------------------------------------------------------------------


def signed(
    brand: LiveBrand,
    raw: bytes,
    *,
    path: str = EVENT,
    method: str = "POST",
    key: str | None = None,
    **changes: str,
) -> dict[str, str]:
    """LTZ-HMAC v1 after integrations.md 7, without ltzd's own code."""
    headers = {
        "X-LTZ-Brand-Id": brand.id,
        "X-LTZ-Timestamp": str(int(time.time())),
        "X-LTZ-Nonce": secrets.token_urlsafe(24),
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    text = "\n".join(
        (
            "v1",
            headers["X-LTZ-Timestamp"],
            headers["X-LTZ-Nonce"],
            method,
            path,
            hashlib.sha256(raw).hexdigest(),
        )
    )
    secret = (key or brand.keys.security_key).encode()
    digest = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    return {"X-LTZ-Signature": f"v1={digest}"} | headers


async def a_guarded_brand(surface: EventSurface, **changes: Any) -> tuple[LiveBrand, str]:
    """A brand that requires signatures, and a user who has used the one claim."""
    rule = {"type": "custom_a", "reward": 0}
    brand = await surface.brand(
        rule, unlimited_rule("custom_b", cooldown_hours=5), signed_bypass=True, **changes
    )
    email = new_email()
    for kind in ("custom_a", "custom_b"):
        assert (await brand.post(email, eventType=kind)).status == 200
    await brand.let_time_pass(60)
    return brand, email


def raw_event(brand: LiveBrand, email: str, **changes: Any) -> bytes:
    fields = {"metadata": {"source": "voice_claim"}} | changes
    return json.dumps(brand.body(email, **fields)).encode()


async def test_without_a_signature_a_bypass_is_a_normal_event(event_surface: EventSurface) -> None:
    brand, email = await a_guarded_brand(event_surface)
    unsigned = await brand.post(email, metadata={"source": "voice_claim"})
    assert (unsigned.status, unsigned.details["reason"]) == (429, "max_claims_reached")
    skipping = await brand.post(email, eventType="custom_b", metadata={"skip_cooldown": True})
    assert (skipping.status, skipping.details["reason"]) == (429, "cooldown")
    assert (await brand.post(metadata={"source": "voice_claim"})).status == 200


async def test_with_a_signature_bypass_and_skip_cooldown_work(event_surface: EventSurface) -> None:
    brand, email = await a_guarded_brand(event_surface)
    raw = raw_event(brand, email)
    assert (await event_surface.post(raw, **signed(brand, raw))).status == 200
    raw = raw_event(brand, email, eventType="custom_b", metadata={"skip_cooldown": True})
    assert (await event_surface.post(raw, **signed(brand, raw))).status == 200


async def test_a_signature_covers_the_query_as_it_was_sent(event_surface: EventSurface) -> None:
    brand, email = await a_guarded_brand(event_surface)
    raw = raw_event(brand, email)
    path = f"{EVENT}?b=2&a=%20x"
    headers = signed(brand, raw, path=path)
    assert (await event_surface.ask("POST", EVENT, raw, headers)).status == 401
    assert (await event_surface.ask("POST", path, raw, headers)).status == 200


async def test_a_wrong_signature_is_401_and_records_nothing(event_surface: EventSurface) -> None:
    brand, email = await a_guarded_brand(event_surface)
    other = await event_surface.brand(unlimited_rule(), signed_bypass=True)
    raw = raw_event(brand, email)
    good = signed(brand, raw)
    now = int(time.time())
    wrong: list[dict[str, str]] = [
        {name: value for name, value in good.items() if name != missing} for missing in good
    ]
    wrong += [
        good | {"X-LTZ-Signature": good["X-LTZ-Signature"].removeprefix("v1=")},
        good | {"X-LTZ-Signature": good["X-LTZ-Signature"].replace("v1=", "v2=")},
        good | {"X-LTZ-Signature": "v1=" + "0" * 64},
        good | {"X-LTZ-Signature": good["X-LTZ-Signature"] + ",junk"},
        good | {"X-LTZ-Timestamp": str(now + 1)},
        good | {"X-LTZ-Nonce": secrets.token_urlsafe(24)},
        good | {"X-LTZ-Brand-Id": other.id},
        signed(brand, raw, X_LTZ_Timestamp=str(now - 310)),
        signed(brand, raw, X_LTZ_Timestamp=str(now + 310)),
        signed(brand, raw, X_LTZ_Timestamp=f"{now}.0"),
        signed(brand, raw, X_LTZ_Timestamp="-1"),
        signed(brand, raw, X_LTZ_Timestamp="9" * 12),
        signed(brand, raw, X_LTZ_Nonce="short"),
        signed(brand, raw, X_LTZ_Nonce="x" * 65),
        signed(brand, raw, X_LTZ_Nonce="x" * 20 + "!"),
        signed(brand, raw, method="GET"),
        signed(brand, raw, path=BULK),
        signed(brand, raw + b" "),
        signed(brand, raw, key=other.keys.security_key),
        signed(brand, raw, key=brand.keys.api_key),
        signed(other, raw),
    ]
    for headers in wrong:
        answer = await event_surface.post(raw, **headers)
        assert (answer.status, answer.body["success"]) == (401, False), (headers, answer.body)
        assert brand.keys.security_key not in answer.raw.decode()
    assert await brand.events() == 2
    assert (await event_surface.post(raw, **good)).status == 200, "no nonce was spent in vain"


async def test_one_of_several_signatures_is_enough(event_surface: EventSurface) -> None:
    brand, email = await a_guarded_brand(event_surface)
    raw = raw_event(brand, email)
    good = signed(brand, raw)
    both = "v1=" + "0" * 64 + "," + good["X-LTZ-Signature"]
    assert (await event_surface.post(raw, **good | {"X-LTZ-Signature": both})).status == 200


@pytest.mark.parametrize("seconds", [-290, 290])
async def test_a_clock_may_be_five_minutes_off(event_surface: EventSurface, seconds: int) -> None:
    brand, email = await a_guarded_brand(event_surface)
    raw = raw_event(brand, email)
    headers = signed(brand, raw, X_LTZ_Timestamp=str(int(time.time()) + seconds))
    assert (await event_surface.post(raw, **headers)).status == 200


async def test_a_nonce_is_good_for_one_event(event_surface: EventSurface) -> None:
    brand, email = await a_guarded_brand(event_surface, duplicate_window_seconds=0)
    raw = raw_event(brand, email)
    headers = signed(brand, raw)
    assert (await event_surface.post(raw, **headers)).status == 200
    assert (await event_surface.post(raw, **headers)).status == 401
    another = raw_event(brand, email, eventType="custom_b")
    reused = signed(brand, another, X_LTZ_Nonce=headers["X-LTZ-Nonce"])
    assert (await event_surface.post(another, **reused)).status == 401
    assert await brand.events() == 3


async def test_the_same_signed_request_fifty_times_at_once_is_one_event(
    event_surface: EventSurface,
) -> None:
    brand, email = await a_guarded_brand(event_surface, duplicate_window_seconds=0)
    raw = raw_event(brand, email)
    headers = signed(brand, raw)
    answers = await asyncio.gather(*(event_surface.post(raw, **headers) for _ in range(50)))
    assert Counter(answer.status for answer in answers) == {200: 1, 401: 49}
    assert await brand.events() == 3


async def test_a_signed_request_that_is_refused_may_be_sent_again(
    event_surface: EventSurface,
) -> None:
    brand, email = await a_guarded_brand(event_surface)
    raw = raw_event(brand, email)
    assert (await event_surface.post(raw, **signed(brand, raw))).status == 200
    headers = signed(brand, raw)
    assert (await event_surface.post(raw, **headers)).status == 409
    await brand.let_time_pass(60)
    assert (await event_surface.post(raw, **headers)).status == 200


async def test_a_key_before_its_rotation_still_signs_and_a_revoked_one_does_not(
    event_surface: EventSurface,
) -> None:
    brand, email = await a_guarded_brand(event_surface)
    old = brand.keys.security_key

    async def rotate(*, revoke: bool) -> str:
        async with transaction(event_surface.daemon.pools.http) as connection:
            rotation = await brand_keys.rotate(
                connection, brand.brand.address, "security_key", event_surface.sealer, revoke=revoke
            )
        await event_surface.refresh()
        return rotation.key

    async def status_with(key: str) -> int:
        raw = raw_event(brand, email)
        await brand.let_time_pass(60)
        return (await event_surface.post(raw, **signed(brand, raw, key=key))).status

    assert await status_with(old) == 200
    new = await rotate(revoke=False)
    assert [await status_with(key) for key in (old, new)] == [200, 200]
    newest = await rotate(revoke=True)
    assert [await status_with(key) for key in (old, new, newest)] == [401, 401, 200]


async def test_a_brand_that_wants_no_signatures_takes_no_notice_of_them(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand({"type": "custom_a", "reward": 0})
    email = new_email()
    await brand.post(email)
    await brand.let_time_pass(60)
    answer = await brand.post(
        email, headers={"X-LTZ-Signature": "rubbish"}, metadata={"source": "voice_claim"}
    )
    assert answer.status == 200


async def test_one_signature_covers_all_items_of_a_bulk_request_once(
    event_surface: EventSurface,
) -> None:
    brand, email = await a_guarded_brand(event_surface)
    bypass = {"source": "voice_claim"}
    items = [brand.body(email, metadata=bypass), brand.body(metadata=bypass)]
    items += [brand.body(email, eventType="custom_b", metadata={"skip_cooldown": True})]
    raw = json.dumps({"events": items}).encode()
    headers = signed(brand, raw, path=BULK)
    unsigned = await event_surface.ask("POST", BULK, raw)
    assert statuses(unsigned) == [429, 200, 429]
    await brand.let_time_pass(60)
    assert statuses(await event_surface.ask("POST", BULK, raw, headers)) == [200, 200, 200]
    await brand.let_time_pass(60)
    assert statuses(await event_surface.ask("POST", BULK, raw, headers)) == [401, 401, 401]


# --- limits in a bulk request, in the order of its items ---------------------------------------


async def test_of_items_that_share_a_global_maximum_the_first_ones_have_it(
    event_surface: EventSurface,
) -> None:
    """A user's second item waits for the commit of the first."""
    brand = await event_surface.brand(
        unlimited_rule(max_total_claims=3), duplicate_window_seconds=0
    )
    first, second, third = new_email(), new_email(), new_email()
    items = [brand.body(email) for email in (first, first, second, third, second)]
    assert statuses(await bulk(event_surface, items)) == [200, 200, 200, 429, 429]


async def test_of_items_that_share_a_budget_the_first_ones_have_it(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(PAID, daily_mint_budget=300, duplicate_window_seconds=0)
    first, second, third = new_email(), new_email(), new_email()
    items = [brand.body(email) for email in (first, first, second, third)]
    assert statuses(await bulk(event_surface, items)) == [200, 200, 200, 429]


@pytest.mark.parametrize("limit", ["max_new_wallets_per_hour", "events_per_minute_per_ip"])
async def test_of_items_of_new_users_the_first_ones_are_let_in(
    event_surface: EventSurface, limit: str
) -> None:
    for _ in range(5):
        brand = await event_surface.brand(unlimited_rule(), **{limit: 10})
        items = [brand.body(f"{secrets.token_hex(8)}@m.example") for _ in range(30)]
        assert statuses(await bulk(event_surface, items)) == [200] * 10 + [429] * 20


async def test_a_bulk_request_counts_each_item_for_its_address(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule(), events_per_minute_per_ip=3)
    assert statuses(await bulk(event_surface, [brand.body() for _ in range(4)])).count(200) == 3
    assert (await brand.post()).status == 429


async def test_a_mix_of_duplicates_and_users_is_decided_as_one_after_the_other(
    event_surface: EventSurface,
) -> None:
    """The same items have the same outcomes one by one and in bulk."""
    rules = (
        unlimited_rule(max_claims_per_user=2, max_total_claims=6),
        unlimited_rule("custom_b", cooldown_hours=1),
        {"type": "custom_c", "reward": 0},
    )
    for seed in range(4):
        one_by_one = await event_surface.brand(*rules, duplicate_window_seconds=0)
        at_once = await event_surface.brand(*rules, duplicate_window_seconds=0)
        mix = [
            (f"u{(seed + number * 7) % 5}", ("form_submit", "custom_b", "custom_c")[number % 3])
            for number in range(25)
        ]
        suffix = secrets.token_hex(8)
        alone = []
        for user, kind in mix:
            answer = await one_by_one.post(f"{user}.{suffix}@mail.example", eventType=kind)
            alone.append(answer.status)
        items = [at_once.body(f"{user}.{suffix}@m.example", eventType=kind) for user, kind in mix]
        assert statuses(await bulk(event_surface, items)) == alone

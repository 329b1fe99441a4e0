"""Every rule of spec 4.1 for one event, as requests and responses of the whole surface.

Rewards are 0 in tests that are not about the reward: such an event is answered at once.
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from ltzd.actions.event_handler.policy import EventPolicy
from ltzd.store.brands import records as brand_records
from ltzd.store.database import transaction
from ltzd.values import checksummed
from tests.support.services.postgres import Databases
from tests.support.surfaces.event_surface import (
    NO_LIMITS,
    EventHandlerResponse,
    EventSurface,
    LiveBrand,
    an_event_surface,
    mint_hash,
    new_email,
    unlimited_rule,
)

DAY = 24 * 3600
BYPASS_SOURCES = ["discord_manual_reward", "voice_claim", "gateway_event"]


def body_of(answer: EventHandlerResponse) -> tuple[int, Any]:
    return answer.status, answer.body


def assert_max_claims(answer: EventHandlerResponse, total: int, maximum: int) -> None:
    """The exact 429 of spec 7.1. A maximum does not end, so the response names no time."""
    assert answer.status == 429, answer.body
    message = answer.details["message"]
    assert isinstance(message, str)
    assert message
    assert answer.body == {
        "success": False,
        "error": "Max claims reached",
        "details": {
            "message": message,
            "reason": "max_claims_reached",
            "totalClaims": total,
            "maxClaims": maximum,
        },
    }
    assert "Retry-After" not in answer.headers


def assert_cooldown(answer: EventHandlerResponse, previous: str, about_seconds: float) -> None:
    assert answer.status == 429, answer.body
    seconds = answer.details["cooldownSeconds"]
    message = answer.details["message"]
    assert isinstance(seconds, int)
    assert isinstance(message, str)
    assert message
    assert about_seconds - 30 < seconds <= about_seconds
    assert answer.body == {
        "success": False,
        "error": "Cooldown active",
        "details": {
            "message": message,
            "reason": "cooldown",
            "cooldownSeconds": seconds,
            "previousReward": previous,
        },
    }
    assert answer.headers["Retry-After"] == str(seconds)


def assert_duplicate(answer: EventHandlerResponse, of: EventHandlerResponse) -> None:
    assert body_of(answer) == (
        409,
        {
            "success": False,
            "error": "Duplicate event",
            "details": {"existingEventId": of.event_id},
        },
    )
    assert "Retry-After" not in answer.headers


# --- success -----------------------------------------------------------------------------------


async def test_a_rewarded_event_answers_all_of_2_2_and_repeats_the_reward(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand()
    answer = await brand.post(eventType="account_creation")

    wallet = await event_surface.value(
        "SELECT wallet FROM rewards WHERE id = $1", UUID(answer.event_id)
    )
    shared = {
        "eventType": "account_creation",
        "walletAddress": checksummed(wallet),
        "transactionHash": mint_hash(answer.event_id),
    }
    assert body_of(answer) == (
        200,
        {
            "success": True,
            "eventId": str(UUID(answer.event_id)),
            "message": "Event recorded; 100 LTZ distributed",
            "rewardAmount": 100,
            "walletCreated": True,
            "status": "published",
            **shared,
            "reward": {"amount": 100, **shared},
        },
    )


async def test_a_reward_of_nothing_is_final_without_a_hash(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    answer = await brand.post()

    assert answer.status == 200
    assert (answer.body["status"], answer.body["rewardAmount"]) == ("final", 0)
    assert answer.body["transactionHash"] is None
    assert answer.body["reward"] == {
        "amount": 0,
        "eventType": "form_submit",
        "walletAddress": answer.body["walletAddress"],
        "transactionHash": None,
    }
    event = await event_surface.get(f"/events/{answer.event_id}")
    assert (event.body["status"], event.body["transactionHash"]) == ("final", None)


async def test_one_email_has_one_wallet_in_every_brand_and_is_new_once(
    event_surface: EventSurface,
) -> None:
    brand, other = (
        await event_surface.brand(unlimited_rule()),
        await event_surface.brand(unlimited_rule()),
    )
    email = new_email()
    first = await brand.post(email)
    second = await other.post(email.upper())

    assert (first.body["walletCreated"], second.body["walletCreated"]) == (True, False)
    assert first.body["walletAddress"] == second.body["walletAddress"]


async def test_a_user_identifier_never_redirects_a_reward(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    stranger = "0x" + "12" * 20
    answer = await brand.post(userIdentifier=stranger)

    assert answer.body["walletAddress"].lower() != stranger
    kept = await event_surface.value(
        "SELECT user_identifier FROM events WHERE id = $1", UUID(answer.event_id)
    )
    assert kept == stranger


# --- brand, automation -------------------------------------------------------------------------


async def test_an_unknown_brand_is_403(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    answer = await brand.post(brandId="0x" + "fe" * 20)
    assert body_of(answer) == (403, {"success": False, "error": "Unknown brand"})


async def test_automation_that_is_off_is_403_and_on_again_within_the_change(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule(), automation=False)
    answer = await brand.post()
    assert answer.status == 403
    assert "automation" in answer.error.lower()
    assert await brand.events() == 0

    await brand.change(automation=True)
    assert (await brand.post()).status == 200


async def switch(brand: LiveBrand, name: brand_records.Switch, *, on: bool) -> None:
    async with transaction(brand.surface.daemon.pools.http) as connection:
        await brand_records.switch(connection, brand.brand.address, name, on=on)
    await brand.surface.refresh()


async def test_a_disabled_brand_is_unknown_everywhere_until_it_is_enabled(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    origin = {"Origin": f"https://{brand.domain}"}
    await switch(brand, "disabled", on=True)

    refused = await brand.post(headers=origin)
    assert body_of(refused) == (403, {"success": False, "error": "Unknown brand"})
    assert "Access-Control-Allow-Origin" not in refused.headers
    assert (await event_surface.get(f"/event-config?brandId={brand.id}")).status == 404

    await switch(brand, "disabled", on=False)
    assert (await brand.post(headers=origin)).status == 200


async def test_a_paused_brands_events_are_taken_and_queued_without_waiting(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(
        {"type": "form_submit", "reward": 5}, unlimited_rule("custom_b")
    )
    await switch(brand, "paused", on=True)
    answer = await brand.post()
    assert (answer.status, answer.body["status"]) == (202, "queued")
    assert (answer.body["transactionHash"], answer.body["rewardAmount"]) == (None, 5)
    assert (await brand.post(eventType="custom_b")).status == 200, "nothing is owed for it"
    assert (await event_surface.get(f"/event-config?brandId={brand.id}")).status == 200

    await switch(brand, "paused", on=False)
    assert (await brand.post()).status == 200


# --- rule 1: the domain ------------------------------------------------------------------------


async def test_a_foreign_domain_is_403_and_the_text_names_both_domains(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule(), domains=("shop.example", "münchen.example"))
    answer = await brand.post(domain="Evil.Example")

    assert answer.status == 403
    for name in ("evil.example", "shop.example", "xn--mnchen-3ya.example"):
        assert name in answer.error
    assert await brand.events() == 0


@pytest.mark.parametrize(
    "domain",
    [
        "shop.example",
        "SHOP.Example",
        "shop.example.",
        "www.shop.example",
        "a.b.c.shop.example",
        "sh\x00op.exa\x1fmple",
        "shop。example",  # an ideographic full stop, which IDNA maps to a dot
        "münchen.example",
        "MÜNCHEN.EXAMPLE",
        "xn--mnchen-3ya.example",
        "XN--MNCHEN-3YA.example",
        "www.münchen.example",
        "mu\u0308nchen.example",
    ],
)
async def test_a_configured_domain_and_its_subdomains_are_authorized(
    event_surface: EventSurface, domain: str
) -> None:
    brand = await event_surface.brand(unlimited_rule(), domains=("shop.example", "münchen.example"))
    assert (await brand.post(domain=domain)).status == 200


@pytest.mark.parametrize(
    "domain",
    [
        "example",
        "other.example",
        "evilshop.example",
        "shop.example.evil.com",
        "shop-example",
        "shop.exampl",
        "munchen.example",
        "sh\u043ep.example",  # a Cyrillic o
    ],
)
async def test_parents_siblings_and_look_alikes_are_not(
    event_surface: EventSurface, domain: str
) -> None:
    brand = await event_surface.brand(unlimited_rule(), domains=("shop.example", "münchen.example"))
    assert (await brand.post(domain=domain)).status == 403


async def test_a_configured_subdomain_does_not_cover_its_parent(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule(), domains=("app.shop.example",))
    assert (await brand.post(domain="shop.example")).status == 403
    assert (await brand.post(domain="www.shop.example")).status == 403
    assert (await brand.post(domain="x.app.shop.example")).status == 200


# The fields, the Origin, and the status: the first source of a domain counts.
PLACES: list[tuple[dict[str, Any], str | None, int]] = [
    ({"domain": "shop.example"}, None, 200),
    ({"domain": "shop.example", "sourceUrl": "https://evil.example/"}, "https://evil.example", 200),
    ({"domain": "evil.example", "sourceUrl": "https://shop.example/"}, "https://shop.example", 403),
    ({"sourceUrl": "https://shop.example/welcome?x#y"}, None, 200),
    ({"sourceUrl": "https://shop.example/"}, "https://evil.example", 200),
    ({"sourceUrl": "https://evil.example/"}, "https://shop.example", 403),
    ({"domain": None, "sourceUrl": "https://shop.example/"}, None, 200),
    ({"domain": None, "sourceUrl": None}, "https://shop.example", 200),
    ({}, "https://shop.example", 200),
    ({}, "https://evil.example", 403),
    ({}, "null", 403),
    ({}, "", 403),
    ({}, None, 403),
    ({"sourceUrl": "https://shop.example/"}, "null", 200),
    ({"domain": "shop.example"}, "null", 200),
]


@pytest.mark.parametrize(("fields", "origin", "status"), PLACES)
async def test_domain_counts_before_source_url_before_origin(
    event_surface: EventSurface, fields: dict[str, Any], origin: str | None, status: int
) -> None:
    brand = await event_surface.brand(unlimited_rule(), domains=("shop.example",))
    headers = {} if origin is None else {"Origin": origin}
    answer = await brand.post(headers=headers, **{"domain": ...} | fields)
    assert answer.status == status, answer.body


async def test_without_any_domain_the_refusal_says_what_to_give(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    answer = await brand.post(domain=...)
    assert answer.status == 403
    for word in ("domain", "sourceUrl", "Origin", brand.domain):
        assert word in answer.raw.decode()


@pytest.mark.parametrize(
    "url",
    [
        "http://shop.example",
        "HTTPS://Shop.Example:8443/x",
        "https://shop.example./x",
        "https://www.shop.example/%00",
        "https://münchen.example/ü",
        "https://xn--mnchen-3ya.example/",
    ],
)
async def test_a_source_urls_host_is_its_domain(event_surface: EventSurface, url: str) -> None:
    brand = await event_surface.brand(unlimited_rule(), domains=("shop.example", "münchen.example"))
    assert (await brand.post(domain=..., sourceUrl=url)).status == 200


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1/shop.example", "https://[::1]/", "https://evil.example/?u=shop.example"],
)
async def test_nothing_but_the_host_of_a_source_url_counts(
    event_surface: EventSurface, url: str
) -> None:
    brand = await event_surface.brand(unlimited_rule(), domains=("shop.example",))
    assert (await brand.post(domain=..., sourceUrl=url)).status == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://shop.example:8443", 200),
        ("http://shop.example", 200),
        ("https://www.shop.example", 200),
        ("https://SHOP.example", 200),
        ("https://xn--mnchen-3ya.example", 200),
        ("https://shop.example.evil.example", 403),
        ("https://evilshop.example", 403),
        ("https://shop.example@evil.example", 403),
        ("shop.example", 403),
        ("file://", 403),
        ("chrome-extension://shop.example", 403),
        ("https://", 403),
        ("*", 403),
    ],
)
async def test_an_origins_host_is_its_domain(
    event_surface: EventSurface, origin: str, status: int
) -> None:
    brand = await event_surface.brand(unlimited_rule(), domains=("shop.example", "münchen.example"))
    answer = await brand.post(domain=..., headers={"Origin": origin})
    assert answer.status == status, answer.body


async def test_the_domain_of_another_brand_is_foreign(event_surface: EventSurface) -> None:
    brand, other = (
        await event_surface.brand(unlimited_rule()),
        await event_surface.brand(unlimited_rule()),
    )
    assert (await brand.post(domain=other.domain)).status == 403
    origin = {"Origin": f"https://{other.domain}"}
    answer = await brand.post(domain=..., headers=origin)
    assert answer.status == 403
    # CORS lets the other brand's page read its refusal.
    assert answer.headers["Access-Control-Allow-Origin"] == origin["Origin"]


async def test_a_domain_that_moves_to_another_brand_is_in_force_at_once(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule(), domains=("old.example",))
    await brand.change(domains=("new.example",))
    assert (await brand.post(domain="old.example")).status == 403
    assert (await brand.post(domain="new.example")).status == 200


# --- catalogues and rewards --------------------------------------------------------------------

FIRST_CATALOGUE = [
    ("account_creation", 100),
    ("complete_survey", 75),
    ("newsletter_subscribe", 25),
    ("rate_experience", 50),
    ("subscribe_renewal", 200),
    ("form_submit", 10),
]
SECOND_CATALOGUE = [
    "email_verification",
    "first_purchase",
    "purchase",
    "referral",
    "review_submission",
    "newsletter_signup",
    "profile_completion",
]


@pytest.mark.parametrize(("kind", "ltz"), FIRST_CATALOGUE)
async def test_a_brand_that_says_nothing_has_the_first_catalogue(
    event_surface: EventSurface, kind: str, ltz: int
) -> None:
    brand = await event_surface.brand()
    answer = await brand.post(eventType=kind)
    assert (answer.status, answer.body["rewardAmount"]) == (200, ltz)


@pytest.mark.parametrize(
    "kind", [*SECOND_CATALOGUE, "custom_none", "nothing", "Account_Creation", "ACCOUNT_CREATION"]
)
async def test_a_type_without_a_rule_is_a_fault_of_event_type(
    event_surface: EventSurface, kind: str
) -> None:
    brand = await event_surface.brand()
    answer = await brand.post(eventType=kind, metadata={"amount": 5})
    assert answer.status == 400
    assert [fault.partition(":")[0] for fault in answer.faults] == ["eventType"]
    assert await brand.events() == 0


@pytest.mark.parametrize("kind", ["referral", "custom_hike", "anything_9"])
async def test_a_type_with_a_rule_earns_what_the_rule_says(
    event_surface: EventSurface, kind: str
) -> None:
    brand = await event_surface.brand({"type": kind, "reward": 7})
    assert (await brand.post()).body["rewardAmount"] == 7


async def test_an_entry_of_the_catalogue_can_be_changed_or_disabled(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(
        {"type": "account_creation", "reward": 1},
        {"type": "form_submit", "enabled": False},
        {"type": "custom_off", "reward": 3, "enabled": False},
        {"type": "complete_survey", "cooldown_hours": 0},
    )
    assert (await brand.post(eventType="account_creation")).body["rewardAmount"] == 1
    assert (await brand.post(eventType="complete_survey")).body["rewardAmount"] == 75
    for kind in ("form_submit", "custom_off"):
        assert (await brand.post(eventType=kind)).status == 400


@pytest.mark.parametrize(
    ("per_dollar", "amount", "ltz"),
    [
        (2, 10, 20),
        (2, "10.50", 21),
        (2, 0.49, 0),
        (2, 0.5, 1),
        (2, "0.499999999999999999", 0),
        ("1.5", 0.99, 1),
        ("0.1", 29.99, 2),
        ("0.1", "30", 3),
        ("0.07", 100, 7),  # 7.000000000000001 in floats
        ("1.1", 1.1, 1),
        (1, 1_000_000, 1_000_000),
        (1, "1000000", 1_000_000),
        (1, "1000000.000", 1_000_000),
        (1, 0.29 * 100, 28),  # sent as 28.999999999999996
    ],
)
async def test_a_purchase_earns_by_the_dollar_rounded_down(
    event_surface: EventSurface, per_dollar: Any, amount: object, ltz: int
) -> None:
    rule = {"type": "purchase", "reward_per_dollar": float(per_dollar), **NO_LIMITS}
    brand = await event_surface.brand(rule)
    answer = await brand.post(metadata={"amount": amount})
    assert (answer.status, answer.body.get("rewardAmount")) == (200, ltz), answer.body


@pytest.mark.parametrize(
    "metadata",
    [
        ...,
        None,
        {},
        *(
            {"amount": amount}
            for amount in (
                *(None, 0, -1, -0.0, 0.0, "0", "", "x", "-5", "+5", "1e3", "1,5", " 5", "0x10"),
                *(True, [], {}, [5], {"amount": 5}, 1_000_000.01, 1_000_001, "1000000.01"),
                *(10**30, 1e308, "9" * 400, "\u0663", "\uff15"),
            )
        ),
    ],
)
async def test_a_purchase_without_a_proper_amount_is_a_fault_of_that_field(
    event_surface: EventSurface, metadata: object
) -> None:
    rule = {"type": "purchase", "reward_per_dollar": 2, **NO_LIMITS}
    brand = await event_surface.brand(rule)
    answer = await brand.post(metadata=metadata)
    assert answer.status == 400, answer.body
    assert [fault.partition(":")[0] for fault in answer.faults] == ["metadata.amount"]
    assert await brand.events() == 0


async def test_other_types_take_no_notice_of_an_amount(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule("custom_a", reward=4))
    assert (await brand.post(metadata={"amount": "nonsense"})).body["rewardAmount"] == 4


# --- rule 2: channels --------------------------------------------------------------------------

CHANNELS = ["lounge", "help-desk", "123456789012345678"]


@pytest.mark.parametrize("channel", ["other", "", "Lounge", "lounge ", "123"])
async def test_a_channel_off_the_list_is_403_with_the_list(
    event_surface: EventSurface, channel: str
) -> None:
    brand = await event_surface.brand(unlimited_rule("custom_chat", channels=CHANNELS))
    answer = await brand.post(metadata={"channel_id": channel})
    assert answer.status == 403
    assert answer.details == {"allowedChannels": CHANNELS}
    assert await brand.events() == 0


@pytest.mark.parametrize(
    "metadata",
    [..., None, {}, {"channel_id": None}, *({"channel_id": name} for name in CHANNELS)],
)
async def test_an_allowed_channel_or_none_at_all_passes(
    event_surface: EventSurface, metadata: object
) -> None:
    brand = await event_surface.brand(unlimited_rule("custom_chat", channels=CHANNELS))
    assert (await brand.post(metadata=metadata)).status == 200


async def test_a_channel_counts_only_where_channels_are_configured(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    assert (await brand.post(metadata={"channel_id": "anywhere"})).status == 200


async def test_control_characters_in_a_channel_are_removed_before_it_is_compared(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule("custom_chat", channels=CHANNELS))
    assert (await brand.post(metadata={"chan\x00nel_id": "lou\x07nge"})).status == 200
    assert (await brand.post(metadata={"channel_id": "\x00"})).status == 403


# --- rule 3: duplicates ------------------------------------------------------------------------


async def test_the_same_event_again_is_409_and_names_the_first(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    email = new_email()
    first = await brand.post(email)
    for again in (email, email.upper(), email.title()):
        assert_duplicate(await brand.post(again), first)
    assert await brand.events() == 1


async def test_a_duplicate_is_one_of_the_same_brand_type_and_user(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule(), unlimited_rule("custom_b"))
    other = await event_surface.brand(unlimited_rule())
    email = new_email()
    for answer in (
        await brand.post(email),
        await brand.post(email, eventType="custom_b"),
        await brand.post(),
        await other.post(email),
    ):
        assert answer.status == 200, answer.body


@pytest.mark.parametrize("window", [5, 60, 3_600])
async def test_the_window_lasts_as_long_as_the_brand_says(
    event_surface: EventSurface, window: int
) -> None:
    brand = await event_surface.brand(unlimited_rule(), duplicate_window_seconds=window)
    email = new_email()
    first = await brand.post(email)
    await brand.let_time_pass(window - 3)
    assert_duplicate(await brand.post(email), first)
    await brand.let_time_pass(3)
    assert (await brand.post(email)).status == 200


async def test_the_window_is_sixty_seconds_unless_the_brand_says_otherwise(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    email = new_email()
    first = await brand.post(email)
    await brand.let_time_pass(57)
    assert_duplicate(await brand.post(email), first)
    await brand.let_time_pass(3)
    assert (await brand.post(email)).status == 200


async def test_a_window_of_nothing_knows_no_duplicates(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule(), duplicate_window_seconds=0)
    email = new_email()
    assert [(await brand.post(email)).status for _ in range(3)] == [200] * 3


async def test_a_refused_duplicate_does_not_extend_the_window(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    email = new_email()
    first = await brand.post(email)
    for _ in range(3):
        await brand.let_time_pass(18)
        assert_duplicate(await brand.post(email), first)
    await brand.let_time_pass(6)
    assert (await brand.post(email)).status == 200


async def test_the_window_moves_with_each_accepted_event(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    email = new_email()
    await brand.post(email)
    await brand.let_time_pass(61)
    second = await brand.post(email)
    await brand.let_time_pass(30)
    assert_duplicate(await brand.post(email), second)


@pytest.mark.parametrize(
    "metadata", [{"source": source} for source in BYPASS_SOURCES] + [{"skip_cooldown": True}]
)
async def test_neither_bypass_nor_skip_cooldown_escapes_the_window(
    event_surface: EventSurface, metadata: dict[str, Any]
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    email = new_email()
    first = await brand.post(email, metadata=metadata)
    assert_duplicate(await brand.post(email, metadata=metadata), first)


async def test_a_refused_event_is_no_first_of_a_duplicate(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule("custom_chat", channels=CHANNELS))
    email = new_email()
    refused = await brand.post(email, metadata={"channel_id": "other"})
    assert refused.status == 403
    assert (await brand.post(email)).status == 200


async def test_of_fifty_identical_requests_one_is_recorded(event_surface: EventSurface) -> None:
    brand = await event_surface.brand({"type": "form_submit", **NO_LIMITS})
    email = new_email()
    answers = await asyncio.gather(*(brand.post(email) for _ in range(50)))

    assert Counter(answer.status for answer in answers) == {200: 1, 409: 49}
    first = next(answer for answer in answers if answer.status == 200)
    for answer in answers:
        if answer is not first:
            assert_duplicate(answer, first)
    assert await brand.events() == 1


# --- rule 4: cooldown and maxima ---------------------------------------------------------------


async def test_a_cooldown_says_how_long_and_since_which_event(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        {"type": "custom_a", "reward": 0, "cooldown_hours": 1.5, "max_claims_per_user": -1}
    )
    email = new_email()
    first = await brand.post(email)
    await brand.let_time_pass(100)
    assert_cooldown(await brand.post(email), first.event_id, 5_300)
    await brand.let_time_pass(5_200)
    assert_cooldown(await brand.post(email), first.event_id, 100)
    await brand.let_time_pass(100)
    assert (await brand.post(email)).status == 200


async def test_a_cooldown_is_24_hours_unless_the_rule_says_otherwise(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand({"type": "custom_a", "reward": 0, "max_claims_per_user": -1})
    email = new_email()
    first = await brand.post(email)
    await brand.let_time_pass(DAY - 60)
    assert_cooldown(await brand.post(email), first.event_id, 60)
    await brand.let_time_pass(60)
    assert (await brand.post(email)).status == 200


async def test_an_event_may_be_claimed_once_unless_the_rule_says_otherwise(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand({"type": "custom_a", "reward": 0})
    email = new_email()
    await brand.post(email)
    await brand.let_time_pass(365 * DAY)
    assert_max_claims(await brand.post(email), 1, 1)


async def test_refused_events_lengthen_no_cooldown(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule(cooldown_hours=0.05))
    email = new_email()
    first = await brand.post(email)
    await brand.let_time_pass(90)
    assert_cooldown(await brand.post(email), first.event_id, 90)
    await brand.let_time_pass(90)
    assert (await brand.post(email)).status == 200


async def test_a_cooldown_is_the_users_own(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        unlimited_rule(cooldown_hours=1), unlimited_rule("custom_b", cooldown_hours=1)
    )
    email = new_email()
    await brand.post(email)
    assert (await brand.post()).status == 200
    assert (await brand.post(email, eventType="custom_b")).status == 200


async def test_a_cooldown_shorter_than_the_window_ends_with_the_window(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule(cooldown_hours=0.001))
    email = new_email()
    first = await brand.post(email)
    await brand.let_time_pass(30)
    assert_duplicate(await brand.post(email), first)


async def test_the_users_maximum_is_counted_exactly(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        unlimited_rule(max_claims_per_user=3),
        unlimited_rule("custom_b"),
        duplicate_window_seconds=0,
    )
    email = new_email()
    assert [(await brand.post(email)).status for _ in range(3)] == [200] * 3
    for _ in range(2):
        assert_max_claims(await brand.post(email.upper()), 3, 3)
    assert (await brand.post()).status == 200
    assert (await brand.post(email, eventType="custom_b")).status == 200


async def test_a_maximum_of_zero_lets_nobody_claim(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        unlimited_rule(max_claims_per_user=0), unlimited_rule("custom_b", max_total_claims=0)
    )
    assert_max_claims(await brand.post(), 0, 0)
    assert_max_claims(await brand.post(eventType="custom_b"), 0, 0)


@pytest.mark.parametrize("unlimited", [-1, 999_999])
async def test_minus_one_and_999999_are_no_limit(
    event_surface: EventSurface, unlimited: int
) -> None:
    brand = await event_surface.brand(unlimited_rule(max_claims_per_user=unlimited))
    email = new_email()
    await brand.post(email)
    async with event_surface.daemon.pools.http.acquire() as connection:
        await connection.execute(
            "UPDATE event_claims SET claims = 5000000 WHERE brand_id = $1", brand.brand.address
        )
    await brand.let_time_pass(60)
    assert (await brand.post(email)).status == 200


@pytest.mark.parametrize("limit", [999_998, 1_000_000])
async def test_a_limit_beside_999999_is_a_limit(event_surface: EventSurface, limit: int) -> None:
    brand = await event_surface.brand(unlimited_rule(max_claims_per_user=limit))
    email = new_email()
    await brand.post(email)
    async with event_surface.daemon.pools.http.acquire() as connection:
        await connection.execute(
            "UPDATE event_claims SET claims = $2 WHERE brand_id = $1", brand.brand.address, limit
        )
    await brand.let_time_pass(60)
    assert_max_claims(await brand.post(email), limit, limit)


async def test_the_global_maximum_holds_for_all_users_together(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        unlimited_rule(max_total_claims=3), unlimited_rule("custom_b")
    )
    other = await event_surface.brand(unlimited_rule(max_total_claims=3))
    answers = await asyncio.gather(*(brand.post() for _ in range(12)))
    assert Counter(answer.status for answer in answers) == {200: 3, 429: 9}
    for answer in answers:
        if answer.status == 429:
            assert_max_claims(answer, 3, 3)
    assert (await brand.post(eventType="custom_b")).status == 200
    assert (await other.post()).status == 200
    assert await brand.events() == 4


async def test_a_raised_global_maximum_lets_so_many_more_in(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule(max_total_claims=2))
    assert [(await brand.post()).status for _ in range(3)] == [200, 200, 429]
    await brand.change(unlimited_rule(max_total_claims=3))
    assert [(await brand.post()).status for _ in range(2)] == [200, 429]
    await brand.change(unlimited_rule(max_total_claims=1))
    assert_max_claims(await brand.post(), 3, 1)
    await brand.change(unlimited_rule())
    assert (await brand.post()).status == 200


async def test_a_global_maximum_that_comes_later_counts_what_was_claimed_before(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    assert [(await brand.post()).status for _ in range(4)] == [200] * 4
    await brand.change(unlimited_rule(max_total_claims=5))
    assert [(await brand.post()).status for _ in range(2)] == [200, 429]
    assert_max_claims(await brand.post(), 5, 5)


@pytest.mark.parametrize("skip", [False, None, ...])
async def test_only_true_skips_the_cooldown(event_surface: EventSurface, skip: object) -> None:
    brand = await event_surface.brand(unlimited_rule(cooldown_hours=1))
    email = new_email()
    first = await brand.post(email)
    await brand.let_time_pass(60)
    metadata = {} if skip is ... else {"skip_cooldown": skip}
    assert_cooldown(await brand.post(email, metadata=metadata), first.event_id, 3_540)
    assert (await brand.post(email, metadata={"skip_cooldown": True})).status == 200


async def test_skip_cooldown_skips_the_cooldown_only(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        {"type": "custom_a", "reward": 0, "max_claims_per_user": 2, "cooldown_hours": 5},
        unlimited_rule("custom_b", max_total_claims=1),
    )
    email, skip = new_email(), {"skip_cooldown": True}
    await brand.post(email)
    await brand.let_time_pass(60)
    second = await brand.post(email, metadata=skip)
    assert second.status == 200
    assert_duplicate(await brand.post(email, metadata=skip), second)
    await brand.let_time_pass(60)
    assert_max_claims(await brand.post(email, metadata=skip), 2, 2)
    await brand.post(eventType="custom_b")
    assert_max_claims(await brand.post(eventType="custom_b", metadata=skip), 1, 1)


async def test_an_event_that_skipped_its_cooldown_begins_a_new_one(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule(cooldown_hours=1))
    email = new_email()
    await brand.post(email)
    await brand.let_time_pass(1_800)
    skipped = await brand.post(email, metadata={"skip_cooldown": True})
    await brand.let_time_pass(1_900)
    assert_cooldown(await brand.post(email), skipped.event_id, 1_700)


# --- rule 5: bypass sources --------------------------------------------------------------------


async def exhausted(brand: LiveBrand) -> str:
    """A user who claimed the brand's first type once, a minute ago."""
    email = new_email()
    assert (await brand.post(email)).status == 200
    await brand.let_time_pass(60)
    return email


@pytest.mark.parametrize("source", BYPASS_SOURCES)
async def test_a_bypass_source_escapes_cooldown_and_the_users_maximum(
    event_surface: EventSurface, source: str
) -> None:
    for rule in (
        {"type": "custom_a", "reward": 0},
        unlimited_rule("custom_a", cooldown_hours=9),
        unlimited_rule("custom_a", max_claims_per_user=1),
    ):
        brand = await event_surface.brand(rule)
        email = await exhausted(brand)
        assert (await brand.post(email)).status == 429
        for _ in range(3):
            assert (await brand.post(email, metadata={"source": source})).status == 200
            await brand.let_time_pass(60)


@pytest.mark.parametrize("source", BYPASS_SOURCES)
async def test_a_bypass_source_obeys_the_global_maximum(
    event_surface: EventSurface, source: str
) -> None:
    brand = await event_surface.brand(unlimited_rule(max_total_claims=2))
    metadata = {"source": source}
    assert [(await brand.post(metadata=metadata)).status for _ in range(2)] == [200, 200]
    assert_max_claims(await brand.post(metadata=metadata), 2, 2)


@pytest.mark.parametrize(
    "source",
    ["", "Voice_Claim", "voice_claim ", "website", 1, True, None, [], ["voice_claim"], {}],
)
async def test_any_other_source_is_a_normal_one(
    event_surface: EventSurface, source: object
) -> None:
    brand = await event_surface.brand({"type": "custom_a", "reward": 0})
    email = await exhausted(brand)
    assert_max_claims(await brand.post(email, metadata={"source": source}), 1, 1)


async def test_a_source_beside_the_metadata_is_none(event_surface: EventSurface) -> None:
    brand = await event_surface.brand({"type": "custom_a", "reward": 0})
    email = await exhausted(brand)
    assert_max_claims(await brand.post(email, source="voice_claim"), 1, 1)


async def test_a_brand_names_its_own_bypass_sources(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(
        {"type": "custom_a", "reward": 0}, bypass_sources=("back_office",)
    )
    email = await exhausted(brand)
    assert (await brand.post(email, metadata={"source": "voice_claim"})).status == 429
    assert (await brand.post(email, metadata={"source": "back_office"})).status == 200

    await brand.change(bypass_sources=())
    await brand.let_time_pass(60)
    assert (await brand.post(email, metadata={"source": "back_office"})).status == 429


async def test_a_bypass_event_counts_as_a_claim_of_later_normal_ones(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(
        {"type": "custom_a", "reward": 0},
        unlimited_rule("custom_b", cooldown_hours=1),
        unlimited_rule("custom_c", max_total_claims=1),
    )
    metadata = {"source": "gateway_event"}
    email = new_email()
    await brand.post(email, metadata=metadata)
    cooling = await brand.post(email, eventType="custom_b", metadata=metadata)
    await brand.post(email, eventType="custom_c", metadata=metadata)
    await brand.let_time_pass(60)

    assert_max_claims(await brand.post(email), 1, 1)
    assert_cooldown(await brand.post(email, eventType="custom_b"), cooling.event_id, 3_540)
    assert_max_claims(await brand.post(eventType="custom_c"), 1, 1)


# --- the order of the checks -------------------------------------------------------------------


async def test_of_two_rules_that_are_broken_the_earlier_one_answers(
    event_surface: EventSurface,
) -> None:
    """A request breaks every rule, and each step keeps the first one that was broken."""
    brand = await event_surface.brand(
        {"type": "form_submit", "enabled": False},
        {
            "type": "purchase",
            "reward_per_dollar": 0.01,
            "channels": ["lounge"],
            "max_total_claims": 2,
            "max_claims_per_user": 1,
            "cooldown_hours": 5,
        },
        automation=False,
    )
    await brand.change(automation=True)
    email = new_email()
    good: dict[str, Any] = {"eventType": "purchase", "metadata": {"amount": 1}}
    first = await brand.post(email, **good)
    assert (first.status, first.body["rewardAmount"]) == (200, 0)
    await brand.change(automation=False)

    wrong: dict[str, Any] = {
        "brandId": "0x" + "fe" * 20,
        "domain": "evil.example",
        "eventType": "form_submit",
        "metadata": {"channel_id": "other", "amount": "x"},
    }
    too_large = await brand.post(email, **wrong | {"sourceUrl": 5, "padding": "x" * 11_000})
    assert too_large.status == 413
    malformed = await brand.post(email, **wrong | {"domain": "not a domain", "sourceUrl": 5})
    assert malformed.status == 400
    assert [fault.partition(":")[0] for fault in malformed.faults] == ["domain", "sourceUrl"]
    assert (await brand.post(email, **wrong)).error == "Unknown brand"

    del wrong["brandId"]
    assert "utomation" in (await brand.post(email, **wrong)).error
    await brand.change(automation=True)
    assert "evil.example" in (await brand.post(email, **wrong)).error
    del wrong["domain"]
    unconfigured = await brand.post(email, **wrong)
    assert (unconfigured.status, unconfigured.faults[0].partition(":")[0]) == (400, "eventType")
    wrong["eventType"] = "purchase"
    assert (await brand.post(email, **wrong)).details == {"allowedChannels": ["lounge"]}
    wrong["metadata"]["channel_id"] = "lounge"
    no_amount = await brand.post(email, **wrong)
    assert (no_amount.status, no_amount.faults[0].partition(":")[0]) == (400, "metadata.amount")

    # The global and the user's maximum are reached, and the cooldown is active.
    assert (await brand.post(**good)).status == 200
    assert_duplicate(await brand.post(email, **good), first)
    await brand.let_time_pass(60)
    assert_max_claims(await brand.post(email, **good), 2, 2)
    purchase = brand.brand.events[1].model_dump()
    await brand.change(purchase | {"max_total_claims": 50})
    assert_max_claims(await brand.post(email, **good), 1, 1)
    await brand.change(purchase | {"max_total_claims": 50, "max_claims_per_user": 2})
    assert_cooldown(await brand.post(email, **good), first.event_id, 5 * 3600 - 60)
    await brand.let_time_pass(5 * 3600)
    assert (await brand.post(email, **good)).status == 200


# --- what stands behind is away ----------------------------------------------------------------


async def test_without_the_identity_provider_it_is_500_and_nothing_is_recorded(
    own_event_surface: EventSurface,
) -> None:
    surface = own_event_surface
    brand = await surface.brand(unlimited_rule(), unlimited_rule("custom_b"))
    email = new_email()
    assert (await brand.post(email)).status == 200
    fault = {"service": "identity", "status": 503, "times": 1000}
    async with surface.http.post(
        surface.sandbox.control_endpoints()["faultUrl"], json=fault
    ) as ordered:
        assert ordered.status == 200

    answer = await brand.post()
    assert body_of(answer) == (500, {"success": False, "error": "Identity provider unavailable"})
    assert await brand.events() == 1
    known = await brand.post(email, eventType="custom_b")
    assert known.status == 200, "who has a wallet needs no provider"


async def test_without_a_database_it_is_503(databases: Databases, tmp_path: Path) -> None:
    url = await databases.fresh_database()
    async with an_event_surface(url, tmp_path) as surface:
        brand = await surface.brand(unlimited_rule())
        await databases.drop(url)
        for answer in (await brand.post(), await surface.get(f"/events/{uuid4()}")):
            assert body_of(answer) == (503, {"success": False, "error": "Database unavailable"})


async def test_without_a_hash_in_time_it_is_202_with_the_fields_of_a_200(
    database_url: str, tmp_path: Path
) -> None:
    policy = EventPolicy(hash_wait=0.05)
    async with an_event_surface(database_url, tmp_path, policy) as surface:
        surface.is_publishing.clear()
        brand = await surface.brand()
        email = new_email()
        answer = await brand.post(email)

        assert answer.status == 202
        assert answer.body["success"] is True
        assert (answer.body["status"], answer.body["transactionHash"]) == ("queued", None)
        assert (answer.body["rewardAmount"], answer.body["reward"]["amount"]) == (10, 10)
        event = await surface.get(f"/events/{answer.event_id}")
        assert (event.status, event.body["status"]) == (200, "queued")
        assert_duplicate(await brand.post(email), answer)

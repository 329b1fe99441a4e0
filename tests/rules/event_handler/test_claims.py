"""Events: what they earn, and the order in which they are refused."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import ceil
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ltzd.errors import (
    ChannelNotAllowed,
    CooldownActive,
    DuplicateEvent,
    InvalidFields,
    MaxClaimsReached,
    Refused,
)
from ltzd.rules.brands.configuration import Brand, EventRule
from ltzd.rules.event_handler.claims import ClaimRecord, check_channel, decide, is_bypass, reward_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
EARLIER = UUID("00000000-0000-4000-8000-000000000001")
PURCHASE = EventRule(type="purchase", reward_per_dollar=Decimal("1.5"))
BRAND = Brand(id="0x" + "aa" * 20, name="Demo", domains=("shop.example",))


def a_claim(claims: int, seconds_ago: float) -> ClaimRecord:
    return ClaimRecord(claims, EARLIER, NOW - timedelta(seconds=seconds_ago))


def refusal(
    rule: EventRule,
    claim: ClaimRecord,
    total_claims: int | None = None,
    bypass: bool = False,
    skip_cooldown: bool = False,
    window_seconds: int = 60,
) -> Refused | None:
    try:
        decide(
            rule=rule,
            window_seconds=window_seconds,
            bypass=bypass,
            skip_cooldown=skip_cooldown,
            claim=claim,
            total_claims=total_claims,
            now=NOW,
        )
    except Refused as error:
        return error
    return None


def test_the_first_event_of_a_user_may_be_claimed() -> None:
    assert refusal(EventRule(type="form_submit", max_total_claims=1), ClaimRecord()) is None


def test_a_duplicate_names_the_event_that_was_first() -> None:
    error = refusal(EventRule(type="form_submit"), a_claim(1, seconds_ago=59.9))

    assert isinstance(error, DuplicateEvent)
    assert error.message == "Duplicate event"
    assert error.details == {"existingEventId": str(EARLIER)}


@pytest.mark.parametrize(("bypass", "skip"), [(True, False), (False, True), (True, True)])
def test_bypass_and_skip_cooldown_do_not_escape_the_duplicate_window(
    bypass: bool, skip: bool
) -> None:
    error = refusal(EventRule(type="form_submit"), a_claim(1, 1), bypass=bypass, skip_cooldown=skip)

    assert isinstance(error, DuplicateEvent)


def test_the_duplicate_window_ends_on_its_second() -> None:
    rule = EventRule(type="form_submit", cooldown_hours=Decimal(0), max_claims_per_user=-1)

    assert refusal(rule, a_claim(1, seconds_ago=60)) is None
    assert refusal(rule, a_claim(1, seconds_ago=0), window_seconds=0) is None


def test_the_users_maximum_is_refused_with_its_numbers() -> None:
    error = refusal(EventRule(type="form_submit", max_claims_per_user=2), a_claim(2, 10**6))

    assert isinstance(error, MaxClaimsReached)
    assert error.message == "Max claims reached"
    assert error.details == {
        "message": "This event was claimed 2 times by this user; the maximum is 2",
        "reason": "max_claims_reached",
        "totalClaims": 2,
        "maxClaims": 2,
    }


def test_the_global_maximum_holds_for_bypass_sources_too_and_shows_the_global_numbers() -> None:
    rule = EventRule(type="form_submit", max_total_claims=500)

    error = refusal(rule, ClaimRecord(), total_claims=500, bypass=True, skip_cooldown=True)

    assert isinstance(error, MaxClaimsReached)
    assert error.details["totalClaims"] == 500
    assert error.details["maxClaims"] == 500


def test_a_cooldown_shows_whole_seconds_rounded_up_and_the_previous_event() -> None:
    rule = EventRule(type="form_submit", max_claims_per_user=-1)

    error = refusal(rule, a_claim(1, seconds_ago=100.5))

    assert isinstance(error, CooldownActive)
    assert error.message == "Cooldown active"
    assert error.details == {
        "message": "This event can be claimed again in 86300 seconds",
        "reason": "cooldown",
        "cooldownSeconds": 86_300,
        "previousReward": str(EARLIER),
    }


def test_skip_cooldown_skips_nothing_else() -> None:
    rule = EventRule(type="form_submit")
    many = EventRule(type="form_submit", max_claims_per_user=999_999)

    assert refusal(many, a_claim(1, 100), skip_cooldown=True) is None
    assert isinstance(refusal(rule, a_claim(1, 100), skip_cooldown=True), MaxClaimsReached)


def test_bypass_sources_escape_cooldown_and_the_users_maximum() -> None:
    assert refusal(EventRule(type="form_submit"), a_claim(9, 100), bypass=True) is None


RULES = st.builds(
    EventRule,
    type=st.just("form_submit"),
    cooldown_hours=st.sampled_from([Decimal(0), Decimal("0.01"), Decimal("0.5"), Decimal(24)]),
    max_claims_per_user=st.sampled_from([-1, 0, 1, 2, 999_999]),
    max_total_claims=st.none() | st.integers(0, 3),
)
CLAIMS = st.just(ClaimRecord()) | st.builds(
    a_claim,
    st.integers(1, 3),
    st.sampled_from([-5.0, 0.0, 0.001, 35.9, 36.0, 59.999, 60.0, 1799.5, 1800.0, 86_400.0])
    | st.floats(0, 100_000),
)


@given(
    rule=RULES,
    claim=CLAIMS,
    total=st.none() | st.integers(0, 4),
    bypass=st.booleans(),
    skip=st.booleans(),
    window=st.sampled_from([0, 5, 60]),
)
@example(
    rule=EventRule(type="form_submit"),
    claim=a_claim(1, -5.0),
    total=None,
    bypass=True,
    skip=True,
    window=60,
)
def test_decisions_agree_with_the_specification_written_naively(
    rule: EventRule,
    claim: ClaimRecord,
    total: int | None,
    bypass: bool,
    skip: bool,
    window: int,
) -> None:
    error = refusal(rule, claim, total, bypass, skip, window)

    assert _facts(error) == _expected(rule, claim, total, bypass, skip, window)


def _facts(error: Refused | None) -> tuple[object, ...] | None:
    match error:
        case DuplicateEvent():
            return ("duplicate", error.details["existingEventId"])
        case MaxClaimsReached():
            return ("maximum", error.details["totalClaims"], error.details["maxClaims"])
        case CooldownActive():
            return ("cooldown", error.details["cooldownSeconds"])
    return None


def _expected(
    rule: EventRule,
    claim: ClaimRecord,
    total: int | None,
    bypass: bool,
    skip: bool,
    window: int,
) -> tuple[object, ...] | None:
    has_claimed = claim.last_event_at is not None
    elapsed = (NOW - claim.last_event_at).total_seconds() if claim.last_event_at else 0.0
    cooldown_seconds = float(rule.cooldown_hours) * 3600
    if has_claimed and elapsed < window:
        return ("duplicate", str(EARLIER))
    if rule.max_total_claims is not None and (total or 0) >= rule.max_total_claims:
        return ("maximum", total or 0, rule.max_total_claims)
    limit = rule.max_claims_per_user
    if not bypass and limit not in (-1, 999_999) and claim.claims >= limit:
        return ("maximum", claim.claims, limit)
    left = round(cooldown_seconds - elapsed, 6)
    if not bypass and not skip and has_claimed and left > 0:
        return ("cooldown", ceil(left))
    return None


@pytest.mark.parametrize(
    ("amount", "ltz"),
    [
        (10, 15),
        (19.99, 29),
        ("19.99", 29),
        ("0.01", 0),
        (0.1, 0),
        (2.0 / 3.0, 0),
        (1_000_000, 1_500_000),
        (1_000_000.0, 1_500_000),
        ("1000000", 1_500_000),
        ("1.999999999999999999999999", 2),
    ],
)
def test_a_purchase_earns_by_the_dollar_rounded_down(amount: object, ltz: int) -> None:
    assert reward_of(PURCHASE, {"amount": amount}) == ltz


def test_rounding_down_is_exact_where_floats_and_decimals_are_not() -> None:
    rule = EventRule(type="purchase", reward_per_dollar=Decimal("0.1"))

    assert reward_of(rule, {"amount": "29.9999999999999999999999999999"}) == 2
    assert reward_of(rule, {"amount": 30}) == 3


@pytest.mark.parametrize(
    "amount",
    [
        None,
        0,
        -1,
        -0.5,
        "0",
        "0.0",
        "-1",
        "",
        " 1",
        "1 ",
        "1e3",
        "+1",
        ".5",
        "5.",
        "1_000",
        "1,000",
        "NaN",
        "1000000.01",
        1_000_001,
        1_000_000.5,
        10**400,
        float("nan"),
        float("inf"),
        float("-inf"),
        True,
        [],
        {},
        "\u0661",
        "9" * 5000,
    ],
)
def test_a_malformed_amount_is_an_invalid_field(amount: object) -> None:
    with pytest.raises(InvalidFields) as caught:
        reward_of(PURCHASE, {"amount": amount})

    faults = caught.value.details["errors"]
    assert isinstance(faults, list)
    assert [str(fault).partition(":")[0] for fault in faults] == ["metadata.amount"]


def test_an_amount_with_too_many_decimals_is_told_how_many_it_may_have() -> None:
    assert reward_of(PURCHASE, {"amount": "3." + "3" * 30}) == 4
    with pytest.raises(InvalidFields) as caught:
        reward_of(PURCHASE, {"amount": "3." + "3" * 31})
    faults = caught.value.details["errors"]
    assert isinstance(faults, list)
    assert "at most 30 decimals" in str(faults[0])


def test_other_types_ignore_the_amount() -> None:
    assert reward_of(EventRule(type="form_submit"), {"amount": "nonsense"}) == 10
    assert reward_of(EventRule(type="custom_x", reward=7), None) == 7


def test_the_configured_sources_bypass_and_no_other() -> None:
    assert is_bypass(BRAND, "voice_claim")
    assert not is_bypass(BRAND, "website")
    assert not is_bypass(BRAND, "")
    assert not is_bypass(BRAND, None)


@pytest.mark.parametrize("channel", ["other", "", "Welcome", 7])
def test_a_channel_off_the_list_is_refused_with_the_list(channel: object) -> None:
    rule = EventRule(type="custom_chat", reward=1, channels=("welcome", "42"))

    with pytest.raises(ChannelNotAllowed) as caught:
        check_channel(rule, {"channel_id": channel})

    assert caught.value.details == {"allowedChannels": ["welcome", "42"]}


def test_an_absent_channel_or_a_rule_without_channels_passes() -> None:
    rule = EventRule(type="custom_chat", reward=1, channels=("welcome",))

    check_channel(rule, None)
    check_channel(rule, {})
    check_channel(rule, {"channel_id": None})
    check_channel(rule, {"channel_id": "welcome"})
    check_channel(EventRule(type="form_submit"), {"channel_id": "anything"})

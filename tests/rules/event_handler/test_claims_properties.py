"""The rules of events agree with a naive model that recounts all events each time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ltzd.errors import (
    BudgetExhausted,
    CooldownActive,
    DuplicateEvent,
    MaxClaimsReached,
    RateLimited,
    Refused,
)
from ltzd.rules.brands.configuration import Brand, EventRule
from ltzd.rules.event_handler.brand_limits import (
    Quota,
    budget_of,
    refuse_more_wallets,
    refuse_over_budget,
    wallets_of,
)
from ltzd.rules.event_handler.claims import ClaimRecord, decide

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
Verdict = tuple[object, ...]
ACCEPTED: Verdict = ("accepted",)


# --- windows, maxima, cooldown, bypass, skip ---------------------------------------------------


@dataclass(frozen=True)
class Attempt:
    """A request: its time, user and flags."""

    at: datetime
    user: int
    bypass: bool
    skip: bool


@dataclass(frozen=True)
class Past:
    at: datetime
    user: int
    event: UUID


def verdict_of(error: Refused | None) -> Verdict:
    match error:
        case None:
            return ACCEPTED
        case DuplicateEvent():
            return ("duplicate", error.details["existingEventId"])
        case MaxClaimsReached():
            return ("maximum", error.details["totalClaims"], error.details["maxClaims"])
        case CooldownActive():
            seconds, previous = error.details["cooldownSeconds"], error.details["previousReward"]
            return ("cooldown", seconds, previous)
    raise AssertionError(error)


@dataclass
class Ltzd:
    """ltzd's record: a counter and the last event of each user, and one total."""

    rule: EventRule
    window_seconds: int
    claims: dict[int, ClaimRecord] = field(default_factory=dict)
    total: int | None = None

    def apply(self, attempt: Attempt, event: UUID) -> Verdict:
        claim = self.claims.get(attempt.user, ClaimRecord())
        try:
            decide(
                rule=self.rule,
                window_seconds=self.window_seconds,
                bypass=attempt.bypass,
                skip_cooldown=attempt.skip,
                claim=claim,
                total_claims=self.total,
                now=attempt.at,
            )
        except Refused as refusal:
            return verdict_of(refusal)
        self.claims[attempt.user] = ClaimRecord(claim.claims + 1, event, attempt.at)
        self.total = (self.total or 0) + 1
        return ACCEPTED


@dataclass
class Naive:
    """The specification's rules, over the list of all accepted events."""

    rule: EventRule
    window_seconds: int
    past: list[Past] = field(default_factory=list)

    def apply(self, attempt: Attempt, event: UUID) -> Verdict:
        refusal = self._refusal(attempt)
        if refusal is None:
            self.past.append(Past(attempt.at, attempt.user, event))
        return refusal or ACCEPTED

    def _refusal(self, attempt: Attempt) -> Verdict | None:
        own = [event for event in self.past if event.user == attempt.user]
        for earlier in reversed(own):
            if (attempt.at - earlier.at).total_seconds() < self.window_seconds:
                return ("duplicate", str(earlier.event))
        most = self.rule.max_total_claims
        if most is not None and len(self.past) >= most:
            return ("maximum", len(self.past), most)
        if attempt.bypass:
            return None
        limit = self.rule.max_claims_per_user
        if limit not in (-1, 999_999) and len(own) >= limit:
            return ("maximum", len(own), limit)
        if attempt.skip:
            return None
        cooldown = float(self.rule.cooldown_hours) * 3600
        for earlier in reversed(own):
            left = round(cooldown - (attempt.at - earlier.at).total_seconds(), 6)
            if left > 0:
                return ("cooldown", ceil(left), str(earlier.event))
        return None


RULES = st.builds(
    EventRule,
    type=st.just("form_submit"),
    cooldown_hours=st.sampled_from([Decimal(0), Decimal("0.01"), Decimal("0.5"), Decimal(24)]),
    max_claims_per_user=st.sampled_from([-1, 0, 1, 2, 3, 999_999]),
    max_total_claims=st.none() | st.integers(0, 6),
)
# Equal times, times at the edges of windows and cooldowns, and any other times.
STEPS = st.sampled_from(
    [
        *(0.0, 0.0, 0.000001, 1.0, 4.999999, 5.0, 35.999999, 36.0, 59.999999, 60.0, 60.000001),
        *(1_799.999999, 1_800.0, 86_399.999999, 86_400.0),
    ]
) | st.floats(0, 100_000)


@st.composite
def timelines(draw: st.DrawFn) -> list[Attempt]:
    steps = draw(st.lists(STEPS, min_size=1, max_size=30))
    return [
        Attempt(
            at=BEGIN + timedelta(seconds=seconds),
            user=draw(st.integers(0, 2)),
            bypass=draw(st.booleans()),
            skip=draw(st.booleans()),
        )
        for seconds in accumulate(steps)
    ]


def events() -> Iterator[UUID]:
    return (UUID(int=number) for number in range(1, 1_000))


@given(rule=RULES, window=st.sampled_from([0, 5, 60, 3_600]), timeline=timelines())
def test_any_timeline_is_decided_as_by_a_list_of_all_events(
    rule: EventRule, window: int, timeline: list[Attempt]
) -> None:
    ltzd, naive = Ltzd(rule, window), Naive(rule, window)
    for attempt, event in zip(timeline, events(), strict=False):
        assert ltzd.apply(attempt, event) == naive.apply(attempt, event)
    assert (ltzd.total or 0) == len(naive.past)


@given(rule=RULES, window=st.sampled_from([0, 5, 60]), timeline=timelines())
def test_no_limit_is_ever_exceeded(rule: EventRule, window: int, timeline: list[Attempt]) -> None:
    """Checks the accepted events alone, independently of the reasons of refusals."""
    ltzd = Ltzd(rule, window)
    accepted = [
        attempt
        for attempt, event in zip(timeline, events(), strict=False)
        if ltzd.apply(attempt, event) == ACCEPTED
    ]
    if rule.max_total_claims is not None:
        assert len(accepted) <= rule.max_total_claims
    for user in range(3):
        own = [attempt for attempt in accepted if attempt.user == user]
        _assert_apart(own, timedelta(seconds=window))
        normal = [n for n, attempt in enumerate(own) if not attempt.bypass]
        if rule.max_claims_per_user not in (-1, 999_999):
            assert all(n < rule.max_claims_per_user for n in normal)
        for n in normal:
            if n and not own[n].skip:
                _assert_apart(own[n - 1 : n + 1], rule.cooldown)


def _assert_apart(attempts: Sequence[Attempt], least: timedelta) -> None:
    for earlier, later in pairwise(attempts):
        assert later.at - earlier.at >= least


@given(rule=RULES, window=st.sampled_from([0, 5, 60]), timeline=timelines())
def test_bypass_and_skip_never_refuse_more_events(
    rule: EventRule, window: int, timeline: list[Attempt]
) -> None:
    """In the same state, bypass and skip are accepted wherever a normal event is."""
    ltzd = Ltzd(rule, window)
    for attempt, event in zip(timeline, events(), strict=False):
        before, total = dict(ltzd.claims), ltzd.total
        outcomes = {}
        for bypass, skip in ((False, False), (False, True), (True, False), (True, True)):
            ltzd.claims, ltzd.total = dict(before), total
            outcomes[bypass, skip] = ltzd.apply(
                Attempt(attempt.at, attempt.user, bypass, skip), event
            )
        if outcomes[False, False] == ACCEPTED:
            assert set(outcomes.values()) == {ACCEPTED}
        if outcomes[False, True] == ACCEPTED:
            assert outcomes[True, True] == ACCEPTED
        assert outcomes[True, False] == outcomes[True, True]
        ltzd.claims, ltzd.total = dict(before), total
        ltzd.apply(attempt, event)


# --- the brand's days and hours ----------------------------------------------------------------

# Zones whose clocks change at midnight, across midnight, by half an hour, or twice a year, and
# zones at the date line.
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",
    "America/Asuncion",
    "America/Santiago",
    "America/Nuuk",
    "Asia/Beirut",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Kiritimati",
    "Pacific/Chatham",
    "Antarctica/Troll",
    "Etc/GMT+12",
]
YEAR = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
_STEP = timedelta(minutes=15)
"""Changes of clocks and midnights of these zones fall on quarters of an hour."""


@lru_cache
def first_moments(zone: str) -> list[datetime]:
    """The first moment of each of the zone's days, found by stepping through the year."""
    moments, clock = [], ZoneInfo(zone)
    moment = YEAR[0] - timedelta(days=3)
    date = moment.astimezone(clock).date()
    while moment < YEAR[1] + timedelta(days=3):
        moment += _STEP
        later = moment.astimezone(clock).date()
        if later != date:
            moments.append(moment)
            assert later > date, "the model supports no day that occurs twice"
        date = later
    return moments


def a_brand(**changes: object) -> Brand:
    fields = {"id": "0x" + "ab" * 20, "name": "Demo", "domains": ("shop.example",)}
    return Brand.model_validate(fields | changes)


def day_of(zone: str, now: datetime) -> tuple[datetime, datetime]:
    moments = first_moments(zone)
    end = next(moment for moment in moments if moment > now)
    return moments[moments.index(end) - 1], end


@pytest.mark.parametrize("zone", ZONES)
def test_every_day_of_a_year_is_a_window_of_its_own_from_midnight_to_midnight(zone: str) -> None:
    brand = a_brand(daily_mint_budget=5, time_zone=zone)
    days = [moment for moment in first_moments(zone) if YEAR[0] <= moment < YEAR[1]]
    assert 364 <= len(days) <= 366
    for start, end in pairwise(days):
        for now in (start, start + (end - start) / 2, end - timedelta(microseconds=1)):
            quota = budget_of(brand, now)
            assert quota is not None
            assert (quota.start, quota.end) == (start, end), (zone, now)
            assert 1 <= quota.seconds_left(now) <= 26 * 3600
            assert timedelta(0) <= timedelta(seconds=quota.seconds_left(now)) - (end - now)


MOMENTS = st.datetimes(
    YEAR[0].replace(tzinfo=None), YEAR[1].replace(tzinfo=None), timezones=st.just(UTC)
)
# Most faults would be around clock changes.
CHANGES = st.builds(
    lambda day, minutes: day + timedelta(minutes=minutes),
    st.sampled_from(
        [datetime(2026, month, day, tzinfo=UTC) for month, day in ((3, 29), (10, 25), (3, 8))]
        + [datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 4, 24, tzinfo=UTC)]
    ),
    st.floats(-1_500, 1_500),
)


@dataclass(frozen=True)
class Mint:
    at: datetime
    ltz: int


@st.composite
def mints(draw: st.DrawFn) -> list[Mint]:
    moments = sorted(draw(st.lists(MOMENTS | CHANGES, min_size=1, max_size=6)))
    crowd = [
        moment + timedelta(seconds=draw(st.sampled_from([0, 0, 1, 3_599, 3_600, 82_800, 86_400])))
        for moment in moments
        for _ in range(draw(st.integers(1, 4)))
    ]
    return [Mint(at, draw(st.sampled_from([0, 1, 40, 60, 100, 101]))) for at in sorted(crowd)]


@settings(max_examples=150)
@given(zone=st.sampled_from(ZONES), budget=st.sampled_from([1, 60, 100, 250]), timeline=mints())
@example(
    zone="America/Havana",
    budget=60,
    timeline=[
        Mint(datetime(2026, 11, 1, 4, 30, tzinfo=UTC), 60),
        Mint(datetime(2026, 11, 1, 5, 30, tzinfo=UTC), 60),
    ],
)
def test_a_budget_is_decided_as_by_a_list_of_the_days_mints(
    zone: str, budget: int, timeline: list[Mint]
) -> None:
    brand = a_brand(daily_mint_budget=budget, time_zone=zone)
    used: dict[datetime, int] = {}
    past: list[Mint] = []
    for mint in timeline:
        start, end = day_of(zone, mint.at)
        today = sum(earlier.ltz for earlier in past if start <= earlier.at < end)
        quota = budget_of(brand, mint.at)
        assert quota is not None
        refusal = over_budget(quota, used.get(quota.start, 0), mint)
        assert (refusal is not None) is (mint.ltz > 0 and today + mint.ltz > budget)
        if refusal is None:
            used[quota.start] = used.get(quota.start, 0) + mint.ltz
            past.append(mint)
        else:
            seconds = (end - mint.at).total_seconds()
            assert refusal.details["retryAfterSeconds"] == max(1, ceil(round(seconds, 6)))


def over_budget(quota: Quota, spent: int, mint: Mint) -> BudgetExhausted | None:
    try:
        refuse_over_budget(quota, spent, mint.ltz, mint.at)
    except BudgetExhausted as refusal:
        return refusal
    return None


@given(limit=st.integers(1, 3), timeline=st.lists(MOMENTS | CHANGES, min_size=1, max_size=20))
def test_new_wallets_are_counted_from_full_hour_to_full_hour(
    limit: int, timeline: list[datetime]
) -> None:
    brand = a_brand(max_new_wallets_per_hour=limit, time_zone="Australia/Lord_Howe")
    made: dict[datetime, int] = {}
    past: list[datetime] = []
    for at in sorted(timeline):
        hour = [
            earlier for earlier in past if earlier.timestamp() // 3600 == at.timestamp() // 3600
        ]
        quota = wallets_of(brand, at)
        assert quota is not None
        refusal = too_many(quota, made.get(quota.start, 0), at)
        assert (refusal is not None) is (len(hour) >= limit)
        if refusal is None:
            made[quota.start] = made.get(quota.start, 0) + 1
            past.append(at)
        else:
            left = refusal.details["retryAfterSeconds"]
            assert isinstance(left, int)
            assert 1 <= left <= 3_600
            assert (at + timedelta(seconds=left)).timestamp() // 3600 > at.timestamp() // 3600


def too_many(quota: Quota, made: int, at: datetime) -> RateLimited | None:
    try:
        refuse_more_wallets(quota, made, at)
    except RateLimited as refusal:
        return refusal
    return None

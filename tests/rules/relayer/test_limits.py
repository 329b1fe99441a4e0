"""The limits on a user's relays: the hour, claims in flight and idempotency keys."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.errors import (
    ClaimLimitReached,
    IdempotencyKeyReused,
    InvalidFields,
    RateLimited,
    ValidationFailed,
)
from ltzd.rules.relayer.calls import RelayWindow, RequestedClaim, SignedPermit
from ltzd.rules.relayer.limits import (
    RELAYS_AN_HOUR,
    ClaimLimit,
    EarlierRelay,
    RelayUsage,
    check_claims,
    check_failures,
    check_gas_limit,
    check_hour,
    check_key,
    check_permit_deadline,
)
from ltzd.values import Address

USER = Address(b"\xa1" * 20)
NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NEW = RelayUsage(NOON, None, 0, None, False, None, ())


def refusal_of(check: Callable[[], None]) -> dict[str, object]:
    with pytest.raises(RateLimited) as refused:
        check()
    return dict(refused.value.details)


# --- the hour ---------------------------------------------------------------------------------


def test_the_hour_begins_with_its_first_relay() -> None:
    assert NEW.start == NOON
    assert NEW.window() == RelayWindow(35, 35, (NOON + 60 * MINUTE).timestamp())
    assert NEW.window(used_more=1).remaining == 34


def test_the_hour_does_not_move_with_later_relays() -> None:
    standing = replace(NEW, window_start=NOON - 59 * MINUTE, used=30)
    assert standing.window(used_more=1) == RelayWindow(35, 4, (NOON + MINUTE).timestamp())


@pytest.mark.parametrize("used", [35, 36, 1_000])
def test_the_remaining_number_is_never_negative(used: int) -> None:
    standing = replace(NEW, window_start=NOON, used=used)
    assert standing.window(used_more=1).remaining == 0


def test_the_thirty_fifth_passes_and_the_thirty_sixth_does_not() -> None:
    check_hour(replace(NEW, window_start=NOON - MINUTE, used=34))
    assert RELAYS_AN_HOUR == 35
    details = refusal_of(lambda: check_hour(replace(NEW, window_start=NOON - MINUTE, used=35)))
    assert details == {"limit": 35, "retryAfterSeconds": 59 * 60}


@pytest.mark.parametrize(
    ("since", "seconds"),
    [
        (timedelta(0), 3600),
        (timedelta(microseconds=1), 3600),
        (timedelta(seconds=1), 3599),
        (timedelta(minutes=59, seconds=59), 1),
        (timedelta(minutes=59, seconds=59, microseconds=999_999), 1),
        # The clock of a transaction that has waited for the lock.
        (timedelta(hours=1), 1),
        (timedelta(hours=1, seconds=2), 1),
    ],
)
def test_a_user_who_waits_until_the_reset_is_admitted(since: timedelta, seconds: int) -> None:
    standing = replace(NEW, window_start=NOON - since, used=35)
    assert refusal_of(lambda: check_hour(standing))["retryAfterSeconds"] == seconds


def test_a_refusal_and_the_answers_before_it_name_one_end_of_the_hour() -> None:
    usage = replace(NEW, window_start=NOON - timedelta(microseconds=1), used=35)

    with pytest.raises(RateLimited) as refused:
        check_hour(usage)

    assert refused.value.reset_at == usage.window().reset_at


# --- claims -----------------------------------------------------------------------------------


def a_limit(on_chain: int, most: int | None, collection: int = 7) -> ClaimLimit:
    return ClaimLimit(RequestedClaim(collection, on_chain), on_chain, most)


def test_a_claim_in_flight_counts_until_the_chain_has_counted_it() -> None:
    standing = replace(NEW, claims=[RequestedClaim(7, 0)])
    with pytest.raises(ClaimLimitReached) as refused:
        check_claims(standing, a_limit(0, most=1))
    assert refused.value.details == {"collectionId": 7, "currentClaims": 1, "maxPerUser": 1}

    check_claims(standing, a_limit(1, most=2))
    with pytest.raises(ClaimLimitReached):
        check_claims(standing, a_limit(1, most=1))


def test_claims_of_other_collections_do_not_count() -> None:
    check_claims(replace(NEW, claims=[RequestedClaim(8, 0)]), a_limit(0, most=1))


def test_without_a_maximum_no_claim_is_refused() -> None:
    check_claims(replace(NEW, claims=[RequestedClaim(7, 10**9)]), a_limit(10**9, most=None))


@dataclass
class Chain:
    """A user's claims of a collection, as `claimFor` counts them, and the relays in flight."""

    counted: int = 0
    in_flight: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    """Claims that the rows still show in flight: they learn of a block later than it comes."""

    def standing(self) -> RelayUsage:
        return replace(NEW, claims=[RequestedClaim(7, expected) for expected in self.known])

    def allows(self, most: int) -> bool:
        try:
            check_claims(self.standing(), a_limit(self.counted, most))
        except ClaimLimitReached:
            return False
        return True

    def ask(self, most: int) -> None:
        if self.allows(most):
            expected = self.counted + len(self.in_flight)
            self.in_flight.append(expected)
            self.known.append(expected)

    def mine(self) -> None:
        """The contract accepts a claim only if it expects the current count."""
        if self.in_flight and self.in_flight.pop(0) == self.counted:
            self.counted += 1

    def learn(self) -> None:
        self.known = list(self.in_flight)


@given(
    most=st.integers(1, 4),
    steps=st.lists(st.sampled_from(["ask", "mine", "learn"]), max_size=30),
)
def test_claims_are_counted_exactly_in_any_order(most: int, steps: list[str]) -> None:
    """A claim is admitted exactly while mined claims and claims in flight leave room for it."""
    chain = Chain()
    for step in steps:
        if step == "ask":
            chain.ask(most)
        elif step == "mine":
            chain.mine()
        else:
            chain.learn()
        assert chain.allows(most) == (chain.counted + len(chain.in_flight) < most)
        assert chain.counted <= most


@given(
    counted=st.integers(0, 5),
    expected=st.lists(st.integers(0, 5), max_size=4),
    most=st.integers(1, 9),
)
def test_the_reported_number_counts_claims_on_chain_and_in_flight(
    counted: int, expected: list[int], most: int
) -> None:
    """The user may also claim without ltzd, so that relays in flight will revert."""
    claims = counted + sum(expected_claims >= counted for expected_claims in expected)
    standing = replace(
        NEW, claims=[RequestedClaim(7, expected_claims) for expected_claims in expected]
    )
    if claims < most:
        check_claims(standing, a_limit(counted, most))
        return
    with pytest.raises(ClaimLimitReached) as refused:
        check_claims(standing, a_limit(counted, most))
    assert refused.value.details["currentClaims"] == claims


# --- keys -------------------------------------------------------------------------------------


def test_a_key_stands_for_one_request() -> None:
    check_key(NEW, b"one")
    standing = replace(NEW, earlier=EarlierRelay(5, b"one"))
    check_key(standing, b"one")
    with pytest.raises(IdempotencyKeyReused):
        check_key(standing, b"another")


def test_a_permit_is_good_through_its_deadline() -> None:
    permit = SignedPermit(USER, USER, 5, 1_000, bytes(65))
    for now in (0, 999.9, 1_000):
        check_permit_deadline(permit, now)
    with pytest.raises(InvalidFields):
        check_permit_deadline(permit, 1_000.1)
    check_permit_deadline(None, 2_000)


# --- gas, and calls that would have failed ----------------------------------------------------


def test_a_callers_gas_limit_pays_for_its_data_and_stays_within_the_maximum() -> None:
    for wanted in (None, 21_040, 1_000_000):
        assert check_gas_limit(b"\x01", wanted) == 21_040
    with pytest.raises(ValidationFailed) as refused:
        check_gas_limit(b"\x01", 1_000_001)
    assert refused.value.details == {"gasLimit": 1_000_001, "maxGasLimit": 1_000_000}
    with pytest.raises(ValidationFailed) as refused:
        check_gas_limit(b"\x01", 21_039)
    assert refused.value.details == {"gasLimit": 21_039, "neededGas": 21_040}


@pytest.mark.parametrize(
    ("seconds_left", "seconds"), [(0.0, 1), (-5.0, 1), (1.5, 2), (86_400, 86_400)]
)
def test_a_thousand_failures_of_a_user_are_kept(seconds_left: float, seconds: int) -> None:
    check_failures(999, seconds_left)
    details = refusal_of(lambda: check_failures(1_000, seconds_left))
    assert details == {"limit": 1_000, "reason": "failed_calls", "retryAfterSeconds": seconds}

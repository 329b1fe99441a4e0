"""The daily gas budgets of relays."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.errors import BudgetExhausted, RateLimited, Refused, ValidationFailed
from ltzd.rules.relayer.gas_budgets import (
    NO_BUDGETS,
    GasBudgets,
    GasLedger,
    GasSpent,
    brand_account,
    is_far_from_spent,
    warnings_of,
)
from ltzd.values import Address

BRAND, OTHER_BRAND = (Address(bytes([n]) * 20) for n in (1, 2))
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
SPENT = GasSpent(NOON, {"ann": 70}, 90)


def refusal_of(act: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        act()
    return caught.value


def test_without_budgets_nothing_is_refused() -> None:
    GasLedger(NO_BUDGETS, GasSpent(NOON, {"ann": 10**30}, 10**30)).admit("ann", 10**30)
    GasLedger(NO_BUDGETS, GasSpent(NOON, {brand_account(BRAND): 10**30}, 10**30)).check_redemption(
        BRAND, 10**30
    )


@pytest.mark.parametrize(
    ("budgets", "of_relays", "of_redemptions"),
    [
        (NO_BUDGETS, False, False),
        (GasBudgets(identity_wei=1), True, False),
        (GasBudgets(total_wei=1), True, True),
        (GasBudgets(brand_wei=1), False, True),
    ],
)
def test_each_budget_limits_relays_redemptions_or_both(
    budgets: GasBudgets, of_relays: bool, of_redemptions: bool
) -> None:
    assert (budgets.limit_relays, budgets.limit_redemptions) == (of_relays, of_redemptions)


def test_a_relays_maximum_cost_must_fit_its_identitys_remaining_budget() -> None:
    GasLedger(GasBudgets(100), SPENT).admit("ann", 30)
    refusal = refusal_of(lambda: GasLedger(GasBudgets(100), SPENT).admit("ann", 31))
    assert isinstance(refusal, RateLimited)
    assert refusal.details == {
        "limit": 35,
        "reason": "gas_budget_exhausted",
        "retryAfterSeconds": 12 * 3600,
    }
    GasLedger(GasBudgets(100), SPENT).admit("bob", 100)


def test_a_relay_must_fit_the_remaining_total_budget() -> None:
    budgets = GasBudgets(total_wei=100)
    for identity in ("ann", "bob", None):  # None: a member whose wallet nobody knows
        GasLedger(budgets, SPENT).admit(identity, 10)
        refusal = refusal_of(lambda name=identity: GasLedger(budgets, SPENT).admit(name, 11))  # type: ignore[misc]
        assert isinstance(refusal, ValidationFailed)
        assert refusal.details == {
            "reason": "total_gas_budget_exhausted",
            "retryAfterSeconds": 12 * 3600,
        }


def test_a_redemption_must_fit_its_brands_remaining_budget_and_the_total() -> None:
    spent = GasSpent(NOON, {brand_account(BRAND): 70}, 90)
    ledger = GasLedger(GasBudgets(identity_wei=5, total_wei=191, brand_wei=100), spent)
    ledger.check_redemption(BRAND, 30)
    refusal = refusal_of(lambda: ledger.check_redemption(BRAND, 31))
    assert isinstance(refusal, BudgetExhausted)
    assert refusal.details == {
        "reason": "brand_gas_budget_exhausted",
        "retryAfterSeconds": 12 * 3600,
    }
    ledger.check_redemption(OTHER_BRAND, 100)
    ledger = GasLedger(GasBudgets(total_wei=189, brand_wei=100), spent)
    assert isinstance(
        refusal_of(lambda: ledger.check_redemption(OTHER_BRAND, 100)), ValidationFailed
    )


def test_admitted_relays_count_for_later_relays() -> None:
    ledger = GasLedger(GasBudgets(100, 200), GasSpent(NOON, {}, 0))
    ledger.admit("ann", 60)
    assert isinstance(refusal_of(lambda: ledger.admit("ann", 41)), RateLimited)
    ledger.admit("bob", 100)
    assert isinstance(refusal_of(lambda: ledger.admit("ann", 40 + 1)), RateLimited)
    ledger.admit("ann", 40)
    assert isinstance(refusal_of(lambda: ledger.admit("eve", 1)), ValidationFailed)


def test_a_precheck_refuses_only_spent_budgets_and_counts_nothing() -> None:
    ledger = GasLedger(GasBudgets(71, 91), SPENT)
    ledger.check("ann")
    ledger.check("ann")
    ledger.admit("ann", 1)
    assert isinstance(refusal_of(lambda: ledger.check("ann")), RateLimited)
    assert isinstance(refusal_of(lambda: ledger.check("bob")), ValidationFailed)


@given(
    relays=st.lists(st.tuples(st.sampled_from(("ann", "bob", None)), st.integers(0, 50))),
    own=st.integers(1, 100),
    total=st.integers(1, 200),
)
def test_no_sequence_of_relays_exceeds_a_budget(
    relays: list[tuple[str | None, int]], own: int, total: int
) -> None:
    ledger = GasLedger(GasBudgets(own, total), GasSpent(NOON, {}, 0))
    admitted: list[tuple[str | None, int]] = []
    for identity, wei in relays:
        try:
            ledger.admit(identity, wei)
        except Refused:
            continue
        admitted.append((identity, wei))
    assert sum(wei for _, wei in admitted) <= total
    for name in ("ann", "bob"):
        assert sum(wei for identity, wei in admitted if identity == name) <= own


@pytest.mark.parametrize(
    ("now", "seconds"),
    [
        ("2026-03-10T00:00:00", 86_400),
        ("2026-03-10T23:59:59.500000", 1),
        ("2026-12-31T23:00:00", 3600),
        ("2028-02-28T12:00:00", 43_200),
    ],
)
def test_a_spent_budget_is_available_again_the_next_day(now: str, seconds: int) -> None:
    spent = replace(SPENT, now=datetime.fromisoformat(now).replace(tzinfo=UTC))
    for budgets in (GasBudgets(70), GasBudgets(0, 90)):
        refusal = refusal_of(lambda set_to=budgets: GasLedger(set_to, spent).check("ann"))  # type: ignore[misc]
        assert refusal.details["retryAfterSeconds"] == seconds


def test_writers_are_serialized_only_while_little_budget_is_left() -> None:
    budgets, half = GasBudgets(total_wei=1_000_000), replace(SPENT, total_wei=500_000)
    assert is_far_from_spent(budgets, half, 500)
    assert not is_far_from_spent(budgets, half, 501)
    assert is_far_from_spent(GasBudgets(5), SPENT, 10**30)


def test_a_budget_of_zero_is_warned_about_with_its_possible_cost() -> None:
    own, total = warnings_of(NO_BUDGETS, 100 * 10**9)
    assert own.startswith("relay.gas_budget_wei_per_day is 0:")
    assert "84 ether a day" in own
    assert total.startswith("relay.total_gas_budget_wei_per_day is 0:")
    assert "0.1 ether" in total
    assert warnings_of(GasBudgets(1, 1, 1), 1) == []


def test_a_total_that_one_brand_may_spend_is_warned_about() -> None:
    (brand,) = warnings_of(GasBudgets(1, 5 * 10**17), 1)
    assert brand.startswith("relay.brand_gas_budget_wei_per_day is 0:")
    assert "0.5 ether a day" in brand

"""Fees follow the gas price and never exceed the cap; stuck attempts differ from waiting ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.operator.fees import (
    GWEI,
    BumpReason,
    FeePolicy,
    Fees,
    GasPrice,
    ResubmissionPolicy,
    Waited,
    are_far_apart,
    bump_reason,
    cancellation,
    fees_for,
    is_implausible,
    price_among,
    replacement,
    with_lowest_tip,
)

wei = st.integers(0, 300 * GWEI)
markets = st.builds(GasPrice, base_fee=wei, tip=wei)
legacy_markets = st.builds(GasPrice, base_fee=st.just(0), tip=wei, is_legacy=st.just(True))
policies = st.builds(FeePolicy, cap=st.integers(1, 200 * GWEI), min_tip=st.integers(0, 3 * GWEI))
# The tip is a part of the fee, so it is at most the fee.
attempts = st.builds(
    lambda fee, share: Fees(fee, fee * share // 100),
    st.integers(0, 150 * GWEI),
    st.integers(0, 100),
)
waits = st.builds(Waited, seconds=st.floats(0, 3600), blocks=st.integers(0, 1000))

POLICY = FeePolicy()
PATIENCE = ResubmissionPolicy(late_seconds=5, passed_over_seconds=15, passed_over_blocks=3)


# --- the first attempt ------------------------------------------------------------------------


def test_fees_cover_twice_the_base_fee() -> None:
    assert fees_for(GasPrice(10 * GWEI, GWEI), POLICY) == Fees(21 * GWEI, GWEI)


def test_a_tip_below_the_minimum_is_raised() -> None:
    gas_price = GasPrice(10 * GWEI, 0)
    assert fees_for(gas_price, FeePolicy(min_tip=2 * GWEI)) == Fees(22 * GWEI, 2 * GWEI)


def test_near_the_cap_the_fee_is_the_cap() -> None:
    assert fees_for(GasPrice(99 * GWEI, GWEI), POLICY) == Fees(100 * GWEI, GWEI)


@given(st.integers(0, 120 * GWEI), policies)
def test_a_first_attempt_leaves_room_for_three_raises(base_fee: int, policy: FeePolicy) -> None:
    """At any base fee, unless base fee and tip alone leave less; then the fees are just these."""
    gas_price = GasPrice(base_fee, 0)
    fees = fees_for(gas_price, policy)
    if fees is None:
        return
    needed = base_fee + policy.min_tip
    raises, highest = 0, fees
    while raises < 3:
        raised = replacement(highest, GasPrice(0, 0), policy)
        if raised is None:
            break
        raises, highest = raises + 1, raised
    assert raises == 3 or fees.max_fee_per_gas == needed
    assert needed * 1331 > policy.cap * 1000 - 5000 or raises == 3


def test_near_the_cap_the_fee_leaves_room_for_exactly_three_raises() -> None:
    fees = fees_for(GasPrice(50 * GWEI, 0), POLICY)
    assert fees is not None
    assert fees.max_fee_per_gas * 1331 <= POLICY.cap * 1000 < (fees.max_fee_per_gas + 4) * 1331


@pytest.mark.parametrize("base_fee", [1, 30, 50, 60, 70, 75])
def test_a_transaction_is_raised_three_times_while_the_base_fee_stays(base_fee: int) -> None:
    gas_price = GasPrice(base_fee * GWEI, 0)
    fees = fees_for(gas_price, POLICY)
    for _ in range(3):
        assert fees is not None
        fees = replacement(fees, gas_price, POLICY)
    assert fees is not None
    assert fees.max_fee_per_gas <= POLICY.cap


def test_above_the_cap_there_are_no_fees() -> None:
    assert fees_for(GasPrice(99 * GWEI, GWEI + 1), POLICY) is None


@given(markets, policies)
def test_fees_stay_within_the_cap_and_pay_the_next_block(
    gas_price: GasPrice, policy: FeePolicy
) -> None:
    fees = fees_for(gas_price, policy)

    if fees is None:
        assert gas_price.base_fee + max(gas_price.tip, policy.min_tip) > policy.cap
        return
    assert fees.max_priority_fee_per_gas <= fees.max_fee_per_gas <= policy.cap
    assert fees.max_fee_per_gas >= gas_price.base_fee + fees.max_priority_fee_per_gas
    assert fees.max_priority_fee_per_gas >= max(gas_price.tip, policy.min_tip)


@given(markets, st.integers(0, 10 * GWEI), policies)
def test_fees_rise_with_the_base_fee_until_the_cap_forbids(
    gas_price: GasPrice, rise: int, policy: FeePolicy
) -> None:
    lower = fees_for(gas_price, policy)
    higher = fees_for(GasPrice(gas_price.base_fee + rise, gas_price.tip), policy)

    if higher is not None:
        assert lower is not None
        assert lower.max_fee_per_gas <= higher.max_fee_per_gas


# --- replacements -----------------------------------------------------------------------------


def test_a_replacement_pays_the_next_blocks_base_fee() -> None:
    assert replacement(Fees(3 * GWEI, GWEI), GasPrice(10 * GWEI, 2 * GWEI), POLICY) == Fees(
        22 * GWEI, 2 * GWEI
    )


def test_a_replacement_pays_a_tenth_more_if_the_next_block_needs_less() -> None:
    assert replacement(Fees(50 * GWEI, 10 * GWEI), GasPrice(GWEI, 0), POLICY) == Fees(
        55 * GWEI, 11 * GWEI
    )


def test_a_tenth_is_rounded_up_and_is_one_wei_at_least() -> None:
    free = FeePolicy(min_tip=0)
    assert replacement(Fees(101, 9), GasPrice(0, 0), free) == Fees(112, 10)
    assert replacement(Fees(0, 0), GasPrice(0, 0), free) == Fees(1, 1)


def test_the_last_tenth_below_the_cap_is_taken_and_none_above_it() -> None:
    cheap = GasPrice(GWEI, GWEI)
    exactly = 1_000_000_000 * 1000 // 11  # its tenth, rounded up, ends at the cap
    fees = replacement(Fees(exactly, GWEI), cheap, POLICY)
    assert fees is not None
    assert fees.max_fee_per_gas == POLICY.cap
    assert replacement(Fees(exactly + 1, GWEI), cheap, POLICY) is None


def test_while_the_next_block_is_over_the_cap_nothing_is_replaced() -> None:
    """The attempt could not be mined, and its increase would limit later replacements."""
    assert replacement(Fees(GWEI, GWEI), GasPrice(100 * GWEI, GWEI), POLICY) is None


@given(attempts, markets, policies)
def test_a_replacement_pays_a_tenth_more_twice_and_stays_under_the_cap(
    highest: Fees, gas_price: GasPrice, policy: FeePolicy
) -> None:
    fees = replacement(highest, gas_price, policy)

    current = fees_for(gas_price, policy)
    if fees is None:
        assert current is None or highest.max_fee_per_gas * 11 > policy.cap * 10 - 10
        return
    assert current is not None
    assert fees.max_priority_fee_per_gas <= fees.max_fee_per_gas <= policy.cap
    for new, old in (
        (fees.max_fee_per_gas, highest.max_fee_per_gas),
        (fees.max_priority_fee_per_gas, highest.max_priority_fee_per_gas),
    ):
        assert new * 10 >= old * 11
        assert new > old
    assert fees.max_fee_per_gas >= max(current.max_fee_per_gas, gas_price.base_fee)
    assert fees.max_priority_fee_per_gas >= current.max_priority_fee_per_gas


@given(attempts, st.lists(markets, max_size=200), policies)
def test_attempts_rise_under_the_cap_and_end_for_any_gas_prices(
    first: Fees, course: list[GasPrice], policy: FeePolicy
) -> None:
    highest, made = first, 0
    for gas_price in course:
        fees = replacement(highest, gas_price, policy)
        if fees is not None:
            assert fees.max_fee_per_gas <= policy.cap
            assert fees.max_fee_per_gas > highest.max_fee_per_gas
            highest, made = fees, made + 1
    assert made <= 300, "increases by a tenth from 1 wei exceed 200 gwei after 273 attempts"


@given(attempts, markets, st.integers(0, 10 * GWEI), policies)
def test_a_higher_gas_price_never_makes_a_cheaper_replacement(
    highest: Fees, gas_price: GasPrice, rise: int, policy: FeePolicy
) -> None:
    lower = replacement(highest, gas_price, policy)
    higher = replacement(highest, GasPrice(gas_price.base_fee + rise, gas_price.tip), policy)

    if higher is not None:
        assert lower is not None
        assert lower.max_fee_per_gas <= higher.max_fee_per_gas


@pytest.mark.parametrize(
    ("highest", "gas_price", "fees"),
    [
        (Fees(50 * GWEI, 10 * GWEI), GasPrice(GWEI, 0), Fees(55 * GWEI, 11 * GWEI)),
        (Fees(95 * GWEI, 10 * GWEI), GasPrice(GWEI, 0), Fees(100 * GWEI, 11 * GWEI)),
        (Fees(95 * GWEI, GWEI), GasPrice(GWEI, 2 * GWEI), Fees(100 * GWEI, 2 * GWEI)),
        (Fees(95 * GWEI, 95 * GWEI), GasPrice(GWEI, 0), Fees(100 * GWEI, 100 * GWEI)),
        (
            Fees(95 * GWEI, 95 * GWEI, is_legacy=True),
            GasPrice(0, GWEI, is_legacy=True),
            Fees(100 * GWEI, 100 * GWEI, is_legacy=True),
        ),
        (Fees(GWEI, GWEI), GasPrice(100 * GWEI, GWEI), None),
    ],
)
def test_a_cancellation_pays_the_cap_where_another_tenth_would_pass_it(
    highest: Fees, gas_price: GasPrice, fees: Fees | None
) -> None:
    assert cancellation(highest, gas_price, POLICY) == fees


# --- without base fees, and tips that no node should name -------------------------------------


def test_without_base_fees_both_fees_are_the_gas_price() -> None:
    assert fees_for(GasPrice(0, 5 * GWEI, is_legacy=True), POLICY) == Fees(
        5 * GWEI, 5 * GWEI, is_legacy=True
    )


@given(legacy_markets, policies)
def test_a_gas_price_is_at_least_the_least_tip_and_at_most_the_cap(
    gas_price: GasPrice, policy: FeePolicy
) -> None:
    fees = fees_for(gas_price, policy)

    if fees is None:
        assert max(gas_price.tip, policy.min_tip) > policy.cap
        return
    assert fees.max_fee_per_gas == fees.max_priority_fee_per_gas <= policy.cap
    assert fees.max_fee_per_gas == max(gas_price.tip, policy.min_tip)


@given(attempts, legacy_markets, policies)
def test_a_replacement_and_a_cancellation_without_base_fees_have_one_price(
    highest: Fees, gas_price: GasPrice, policy: FeePolicy
) -> None:
    dearer = replacement(highest, gas_price, policy)
    if dearer is not None:
        assert dearer.is_legacy
        assert dearer.max_fee_per_gas == dearer.max_priority_fee_per_gas <= policy.cap
        assert dearer.max_fee_per_gas * 10 >= highest.max_fee_per_gas * 11
    freed = cancellation(highest, gas_price, policy)
    if freed is not None:
        assert freed.is_legacy
        assert freed.max_fee_per_gas == freed.max_priority_fee_per_gas <= policy.cap


@pytest.mark.parametrize(
    ("gas_price", "is_asked_again"),
    [
        (GasPrice(GWEI, 2 * GWEI), False),
        (GasPrice(GWEI, 11 * GWEI), False),
        (GasPrice(GWEI, 12 * GWEI), True),
        (GasPrice(0, GWEI), False),
        (GasPrice(0, GWEI, is_legacy=True), False),
        (GasPrice(0, 5 * GWEI, is_legacy=True), True),
        (GasPrice(0, 101 * GWEI, is_legacy=True), True),
        (GasPrice(98 * GWEI, GWEI), False),
        (GasPrice(100 * GWEI, GWEI), True),
    ],
)
def test_an_absurd_tip_and_a_price_above_the_cap_are_asked_of_other_nodes(
    gas_price: GasPrice, is_asked_again: bool
) -> None:
    assert is_implausible(gas_price, POLICY) is is_asked_again


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (GasPrice(101 * GWEI, GWEI), GasPrice(95 * GWEI, 5 * GWEI), False),
        (GasPrice(101 * GWEI, GWEI), GasPrice(52 * GWEI, 0), False),
        (GasPrice(101 * GWEI, GWEI), GasPrice(GWEI, GWEI), True),
        (GasPrice(GWEI, GWEI), GasPrice(101 * GWEI, GWEI), True),
        (GasPrice(0, GWEI), GasPrice(7, 10**21), False),
        (GasPrice(GWEI, 0), GasPrice(2 * GWEI + POLICY.min_tip, 0), False),
        (GasPrice(GWEI, 0), GasPrice(2 * GWEI + POLICY.min_tip + 1, 0), True),
        (GasPrice(0, GWEI), GasPrice(0, GWEI, is_legacy=True), True),
        (GasPrice(0, GWEI, is_legacy=True), GasPrice(0, 90 * GWEI, is_legacy=True), False),
    ],
)
def test_only_base_fees_that_few_blocks_do_not_explain_are_far_apart(
    first: GasPrice, second: GasPrice, expected: bool
) -> None:
    assert are_far_apart(first, second, POLICY) is expected


def test_the_lowest_tip_of_several_nodes_counts() -> None:
    absurd = GasPrice(GWEI, 10**21)
    assert with_lowest_tip(absurd, []) == absurd
    assert with_lowest_tip(absurd, [absurd, GasPrice(2 * GWEI, 3)]) == GasPrice(GWEI, 3)
    without_base_fee = GasPrice(0, 3, is_legacy=True)
    assert with_lowest_tip(absurd, [without_base_fee]) == absurd
    assert with_lowest_tip(without_base_fee, [absurd, GasPrice(GWEI, 1)]) == without_base_fee


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        (GasPrice(0, 0), GasPrice(10 * GWEI, GWEI)),
        (GasPrice(101 * GWEI, GWEI), GasPrice(10 * GWEI, GWEI)),
        (GasPrice(0, 90 * GWEI, is_legacy=True), GasPrice(10 * GWEI, GWEI)),
        (GasPrice(10 * GWEI, 10**21), GasPrice(10 * GWEI, GWEI)),
        # The whole base fee is not paid, and the tip is the honest node's.
        (GasPrice(50 * GWEI, GWEI), GasPrice(50 * GWEI, GWEI)),
    ],
)
def test_one_of_two_nodes_makes_no_price_absurd_or_too_low(
    lie: GasPrice, expected: GasPrice
) -> None:
    honest = GasPrice(10 * GWEI, GWEI)
    for prices in ([lie, honest], [honest, lie]):
        assert price_among(prices, POLICY) == expected


def test_one_nodes_absurd_tip_within_the_cap_is_not_paid() -> None:
    honest, lie = GasPrice(2 * GWEI, GWEI), GasPrice(3 * GWEI, 90 * GWEI)
    for prices in ([lie, honest], [honest, lie]):
        assert price_among(prices, POLICY) == GasPrice(3 * GWEI, GWEI)


def test_of_two_gas_prices_without_base_fee_the_higher_one_within_the_cap_is_paid() -> None:
    low, high, absurd = (
        GasPrice(0, price * GWEI, is_legacy=True) for price in (20, 30, POLICY.cap + 1)
    )
    for prices in ([low, high], [high, low], [absurd, high], [high, absurd]):
        assert price_among(prices, POLICY) == high


def test_a_tip_above_the_cap_is_never_paid() -> None:
    assert fees_for(GasPrice(GWEI, 10**21), POLICY) is None


# --- stuck ------------------------------------------------------------------------------------

FEES = Fees(20 * GWEI, GWEI)
PAYABLE = GasPrice(10 * GWEI, GWEI)
TOO_DEAR = GasPrice(20 * GWEI, GWEI)


def stuck(waited: Waited, gas_price: GasPrice) -> BumpReason | None:
    return bump_reason(FEES, waited, gas_price, POLICY, PATIENCE)


def test_an_attempt_below_the_base_fee_is_stuck_after_the_waiting_time() -> None:
    assert stuck(Waited(4.9, 9), TOO_DEAR) is None
    assert stuck(Waited(5.0, 0), TOO_DEAR) is BumpReason.BASE_FEE


def test_the_least_tip_must_be_paid_beside_the_base_fee() -> None:
    edge = 20 * GWEI - POLICY.min_tip
    assert stuck(Waited(9, 0), GasPrice(edge, 0)) is None
    assert stuck(Waited(9, 0), GasPrice(edge + 1, 0)) is BumpReason.BASE_FEE


def test_an_attempt_above_the_base_fee_is_stuck_after_both_seconds_and_blocks() -> None:
    assert stuck(Waited(3600, 2), PAYABLE) is None
    assert stuck(Waited(14.9, 1000), PAYABLE) is None
    assert stuck(Waited(15, 3), PAYABLE) is BumpReason.PASSED_OVER


@given(attempts, waits, markets, policies)
def test_an_attempt_above_the_base_fee_is_never_stuck_without_blocks(
    fees: Fees, waited: Waited, gas_price: GasPrice, policy: FeePolicy
) -> None:
    reason = bump_reason(fees, Waited(waited.seconds, 0), gas_price, policy, PATIENCE)

    assert reason in {None, BumpReason.BASE_FEE}
    if reason is BumpReason.BASE_FEE:
        assert fees.max_fee_per_gas < gas_price.base_fee + policy.min_tip

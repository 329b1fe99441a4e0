"""Fees never pass the cap, and follow the market without jumps down."""

from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.fees import GWEI, FeePolicy, Fees, fees_for

wei = st.integers(0, 300 * GWEI)
policies = st.builds(FeePolicy, cap=st.integers(1, 200 * GWEI), min_tip=st.integers(0, 3 * GWEI))


def test_fees_outlast_doubling_of_the_base_fee() -> None:
    assert fees_for(10 * GWEI, GWEI, FeePolicy()) == Fees(21 * GWEI, GWEI)


def test_a_tip_below_the_least_is_raised() -> None:
    assert fees_for(10 * GWEI, 0, FeePolicy(min_tip=2 * GWEI)) == Fees(22 * GWEI, 2 * GWEI)


def test_near_the_cap_the_fee_is_the_cap() -> None:
    assert fees_for(99 * GWEI, GWEI, FeePolicy(cap=100 * GWEI)) == Fees(100 * GWEI, GWEI)


def test_over_the_cap_there_are_no_fees() -> None:
    assert fees_for(99 * GWEI, GWEI + 1, FeePolicy(cap=100 * GWEI)) is None


@given(wei, wei, policies)
def test_fees_are_never_over_the_cap_and_always_pay_the_next_block(
    base_fee: int, tip: int, policy: FeePolicy
) -> None:
    fees = fees_for(base_fee, tip, policy)

    if fees is None:
        assert base_fee + max(tip, policy.min_tip) > policy.cap
        return
    assert fees.max_priority_fee_per_gas <= fees.max_fee_per_gas <= policy.cap
    assert fees.max_fee_per_gas >= base_fee + fees.max_priority_fee_per_gas
    assert fees.max_priority_fee_per_gas >= max(tip, policy.min_tip)


@given(wei, wei, st.integers(0, 10 * GWEI), policies)
def test_fees_rise_with_the_base_fee_until_the_cap_forbids(
    base_fee: int, tip: int, rise: int, policy: FeePolicy
) -> None:
    lower = fees_for(base_fee, tip, policy)
    higher = fees_for(base_fee + rise, tip, policy)

    if higher is not None:
        assert lower is not None
        assert lower.max_fee_per_gas <= higher.max_fee_per_gas

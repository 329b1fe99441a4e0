"""Reserves and gas limits hold twice what a rollup asks now, and nothing where it asks nothing."""

from hypothesis import given
from hypothesis import strategies as st

from ltzd.chain.contracts import ltz
from ltzd.rules.operator.l1_costs import (
    NO_L1_COSTS,
    OPERATOR_FEE_SAMPLE,
    SAMPLE_BYTES,
    L1Costs,
)
from ltzd.rules.operator.mint_gas import MOST_PERCENT, USUAL_PERCENT, gas_percent
from ltzd.rules.operator.sendable import TRANSACTION_GAS_CAP

sizes = st.integers(0, 4 * SAMPLE_BYTES)
amounts = st.integers(0, 10**15)
all_costs = st.builds(L1Costs, amounts, amounts, amounts, amounts, amounts, amounts)


@given(sizes, sizes)
def test_a_chain_that_is_no_rollup_costs_nothing_more(data_bytes: int, gas: int) -> None:
    assert NO_L1_COSTS.max_fee_wei(data_bytes, gas) == 0
    assert NO_L1_COSTS.extra_gas(data_bytes) == 0


def test_the_most_is_twice_the_price_of_now() -> None:
    op_stack = L1Costs(fee_without_data=100, fee_of_sample=100 + SAMPLE_BYTES)
    assert op_stack.max_fee_wei(0, 50_000) == 200
    assert op_stack.max_fee_wei(10, 50_000) == 220
    with_operator_fee = L1Costs(operator_fee_without_gas=7, operator_fee_of_sample=7 + 10**6)
    assert with_operator_fee.operator_fee_wei(50_000) == 50_007
    assert with_operator_fee.max_fee_wei(0, 50_000) == 100_014
    arbitrum = L1Costs(gas_without_data=1_000, gas_of_sample=1_000 + 2 * SAMPLE_BYTES)
    assert arbitrum.gas(100) == 1_200
    assert arbitrum.extra_gas(100) == 2_400


@given(all_costs, st.lists(st.tuples(sizes, st.integers(0, 10**7)), max_size=20))
def test_the_reserve_of_many_is_that_of_each(
    costs: L1Costs, transactions: list[tuple[int, int]]
) -> None:
    together = costs.max_fee_wei(
        sum(size for size, _ in transactions),
        sum(gas for _, gas in transactions),
        len(transactions),
    )
    alone = sum(costs.max_fee_wei(size, gas) for size, gas in transactions)
    assert alone - 4 * len(transactions) <= together <= alone


def test_a_curve_below_the_straight_line_is_covered() -> None:
    """GasPriceOracle's fee has a floor for small data, and grows in a straight line above it."""

    def fee(size: int) -> int:
        return max(1_000, size // 2 - 300)

    costs = L1Costs(fee_without_data=fee(0), fee_of_sample=fee(SAMPLE_BYTES))
    for size in range(0, SAMPLE_BYTES, 97):
        assert costs.max_fee_wei(size, 0) >= 2 * fee(size)


@given(all_costs, sizes, sizes)
def test_more_data_never_costs_less(costs: L1Costs, size: int, more: int) -> None:
    assert costs.max_fee_wei(size + more, 0) >= costs.max_fee_wei(size, 0)
    assert costs.extra_gas(size + more) >= costs.extra_gas(size)


@given(st.integers(0, 2**200), st.integers(0, 2**200))
def test_whatever_a_node_says_a_mint_of_one_reward_fits_into_a_block(
    without_data: int, of_sample: int
) -> None:
    costs = L1Costs(gas_without_data=without_data, gas_of_sample=of_sample)
    limit = ltz.mint_gas_limit(1) * MOST_PERCENT // 100
    assert limit + costs.extra_gas(ltz.mint_call_bytes(1)) <= TRANSACTION_GAS_CAP


def test_the_operator_fee_is_exact_at_its_sample() -> None:
    assert L1Costs(operator_fee_of_sample=12_345).operator_fee_wei(OPERATOR_FEE_SAMPLE) == 12_345


def test_the_formula_for_mints_stays_where_it_suffices_by_a_quarter() -> None:
    assert gas_percent(70_000, 200_000) == USUAL_PERCENT
    assert gas_percent(150_000, 200_000) == USUAL_PERCENT
    assert gas_percent(150_001, 200_000) == USUAL_PERCENT + 1
    assert gas_percent(300_000, 200_000) == 2 * USUAL_PERCENT


@given(st.integers(0, 2**200), st.integers(100_000, 5_000_000))
def test_the_factor_for_mints_is_bounded(estimate: int, formula: int) -> None:
    percent = gas_percent(estimate, formula)
    assert USUAL_PERCENT <= percent <= MOST_PERCENT
    if percent < MOST_PERCENT:
        assert formula * percent // 100 >= estimate

"""A request gets a tenth more than before, at least today's price, and never passes the cap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.operator.fees import GWEI, FeePolicy, Fees, GasPrice, fees_for
from ltzd.rules.operator.requests import Action, RequestOutcome, decide, outcome_of
from ltzd.rules.operator.sendable import Obstacle
from ltzd.rules.operator.transactions import Inclusion, State, Transaction
from ltzd.values import Hash32

POLICY = FeePolicy(cap=100 * GWEI)
NOW = GasPrice(GWEI, GWEI // 10)
HIGHEST = Fees(3 * GWEI, GWEI)
SIGNED = Transaction(State.SIGNED)
HERE = Inclusion(7, Hash32(b"\x07" * 32), succeeded=True)


def decided(
    action: Action,
    tx: Transaction = SIGNED,
    highest: Fees = HIGHEST,
    gas_price: GasPrice = NOW,
    *,
    is_rejected: bool = False,
) -> Fees | RequestOutcome:
    return decide(action, tx, highest, gas_price, POLICY, is_rejected=is_rejected)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize(
    "state", [state for state in State if state.value not in "signed published"]
)
def test_what_is_mined_or_settled_is_not_replaced(action: Action, state: State) -> None:
    assert decided(action, Transaction(state, HERE)) is RequestOutcome.MINED


@pytest.mark.parametrize("action", Action)
def test_bytes_that_are_refused_at_any_price_are_left_to_the_lane(action: Action) -> None:
    assert decided(action, is_rejected=True) is RequestOutcome.REFUSED


def test_a_cancellation_is_made_dearer_but_not_cancelled() -> None:
    abandoned = Transaction(State.PUBLISHED, is_abandoned=True)

    assert decided(Action.CANCEL, abandoned) is RequestOutcome.CANCELLED
    assert decided(Action.SPEED_UP, abandoned) == decided(Action.SPEED_UP)


@pytest.mark.parametrize("action", Action)
def test_no_request_passes_the_cap(action: Action) -> None:
    assert decided(action, highest=Fees(95 * GWEI, GWEI)) is RequestOutcome.FEES
    assert decided(action, gas_price=GasPrice(100 * GWEI, GWEI)) is RequestOutcome.FEES


def test_an_attempt_of_a_chain_without_base_fees_names_one_price() -> None:
    fees = decided(Action.SPEED_UP, gas_price=GasPrice(0, 2 * GWEI, is_legacy=True))

    assert isinstance(fees, Fees)
    assert fees.is_legacy
    assert fees.max_fee_per_gas == fees.max_priority_fee_per_gas == 3 * GWEI + 3 * GWEI // 10


prices = st.integers(1, 120 * GWEI)


@given(prices, prices, prices, prices, st.sampled_from(Action), st.booleans())
def test_an_attempt_outbids_the_older_ones_and_pays_todays_price_under_the_cap(
    max_fee: int, tip: int, base_fee: int, usual_tip: int, action: Action, is_legacy: bool
) -> None:
    highest = Fees(max(max_fee, tip), tip)
    gas_price = GasPrice(0 if is_legacy else base_fee, usual_tip, is_legacy)

    fees = decided(action, highest=highest, gas_price=gas_price)

    today = fees_for(gas_price, POLICY)
    if isinstance(fees, RequestOutcome):
        assert fees is RequestOutcome.FEES
        assert today is None or 11 * highest.max_fee_per_gas > 10 * POLICY.cap
        return
    assert today is not None
    assert fees.max_fee_per_gas <= POLICY.cap
    assert fees.max_fee_per_gas >= today.max_fee_per_gas
    assert 10 * fees.max_fee_per_gas >= 11 * highest.max_fee_per_gas
    assert 10 * fees.max_priority_fee_per_gas >= 11 * highest.max_priority_fee_per_gas


@pytest.mark.parametrize("obstacle", Obstacle)
def test_each_obstacle_to_signing_has_an_outcome_that_changes_nothing(obstacle: Obstacle) -> None:
    assert outcome_of(obstacle) is not RequestOutcome.DONE


def test_a_request_stays_open_while_no_other_node_confirms_a_blocks_gas() -> None:
    assert {each for each in Obstacle if outcome_of(each) is None} == {
        Obstacle.BLOCK_GAS_UNCONFIRMED
    }

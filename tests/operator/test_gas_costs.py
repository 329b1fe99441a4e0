"""The cost that a receipt tells is recorded, up to what was reserved for the transaction."""

import pytest
from msgspec.structs import replace

from ltzd.chain.node.answers.typed import Receipt
from ltzd.operator.settlement import inclusion_of
from ltzd.rules.operator.fees import GWEI, Fees
from ltzd.rules.operator.l1_costs import NO_L1_COSTS, OPERATOR_FEE_SAMPLE, L1Costs
from ltzd.rules.operator.transactions import GasCost
from ltzd.store.operator.transactions import Attempt, newly_signed
from tests.support.rows.core import a_hash

FEES = Fees(4 * GWEI, GWEI)
ATTEMPT = Attempt(a_hash("attempt"), b"\x01" * 100, FEES)
TX = newly_signed(1, 0, 60_000, ATTEMPT)
RECEIPT = Receipt(ATTEMPT.hash, 7, a_hash("block 7"), True, 50_000, 3 * GWEI)
COSTS = L1Costs(operator_fee_without_gas=7, operator_fee_of_sample=7 + OPERATOR_FEE_SAMPLE)
"""The operator fee is 7 wei, and one for each gas."""


def cost(receipt: Receipt, l1_costs: L1Costs = NO_L1_COSTS) -> GasCost:
    gas_cost = inclusion_of(receipt, TX, l1_costs).gas_cost
    assert gas_cost is not None
    return gas_cost


def test_the_cost_is_the_receipts() -> None:
    assert cost(RECEIPT) == GasCost(ATTEMPT.hash, 50_000, 3 * GWEI)


def test_a_receipt_without_a_price_costs_the_highest_price() -> None:
    assert cost(replace(RECEIPT, effective_gas_price=None)).effective_gas_price == 4 * GWEI


@pytest.mark.parametrize(
    ("receipt", "recorded"),
    [
        (replace(RECEIPT, gas_used=2**60), GasCost(ATTEMPT.hash, 60_000, 3 * GWEI)),
        (replace(RECEIPT, effective_gas_price=2**60), GasCost(ATTEMPT.hash, 50_000, 4 * GWEI)),
        (replace(RECEIPT, l1_fee_wei=2**60), GasCost(ATTEMPT.hash, 50_000, 3 * GWEI)),
    ],
)
def test_no_receipt_costs_more_than_was_reserved(receipt: Receipt, recorded: GasCost) -> None:
    assert cost(receipt) == recorded


def test_a_rollups_fees_are_recorded_together() -> None:
    receipt = replace(RECEIPT, l1_fee_wei=1_000, has_operator_fee=True)
    assert (
        cost(receipt, replace(COSTS, fee_without_data=1_000, fee_of_sample=1_000)).l1_fee_wei
        == 1_000 + 50_007
    )
    without = replace(receipt, has_operator_fee=False)
    assert (
        cost(without, replace(COSTS, fee_without_data=1_000, fee_of_sample=1_000)).l1_fee_wei
        == 1_000
    )

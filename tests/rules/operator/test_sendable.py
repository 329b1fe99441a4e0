"""Transactions that may be signed, by gas, fees and funds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.chain.contracts import ltz
from ltzd.rules.operator.fees import GWEI, Fees
from ltzd.rules.operator.sendable import (
    TRANSACTION_GAS_CAP,
    Obstacle,
    SigningLimits,
    intrinsic_gas,
    max_gas_limit,
    min_gas_limit,
    obstacle,
)

FEES = Fees(3 * GWEI, GWEI)
ROOMY = SigningLimits(block_gas_limit=30_000_000, fee_cap=100 * GWEI, funds_wei=10**18)


@pytest.mark.parametrize(
    ("data", "intrinsic", "least"),
    [
        (b"", 21_000, 21_000),
        (b"\x00", 21_004, 21_010),
        (b"\x01", 21_016, 21_040),
        (bytes(100), 21_400, 22_000),
        (b"\xff" * 100, 22_600, 25_000),
        (b"\x00\x01" * 50, 22_000, 23_500),
    ],
)
def test_data_costs_by_the_byte_and_has_a_floor(data: bytes, intrinsic: int, least: int) -> None:
    """EIP-2028 and EIP-7623."""
    assert (intrinsic_gas(data), min_gas_limit(data)) == (intrinsic, least)


@pytest.mark.parametrize(
    ("block", "most"),
    [(None, 2**24), (30_000_000, 2**24), (2**24, 2**24), (3_000_000, 3_000_000)],
)
def test_no_gas_limit_passes_the_block_or_the_cap_of_transactions(
    block: int | None, most: int
) -> None:
    assert max_gas_limit(block) == most


@pytest.mark.parametrize(
    ("gas", "fees", "limits", "expected"),
    [
        (0, FEES, ROOMY, Obstacle.INTRINSIC_GAS),
        (1, FEES, ROOMY, Obstacle.INTRINSIC_GAS),
        (21_000, FEES, ROOMY, Obstacle.INTRINSIC_GAS),
        (21_039, FEES, ROOMY, Obstacle.INTRINSIC_GAS),
        (21_040, FEES, ROOMY, None),
        (30_000_001, FEES, ROOMY, Obstacle.BLOCK_GAS),
        (2**24 + 1, FEES, SigningLimits(None, 100 * GWEI, 10**20), Obstacle.BLOCK_GAS),
        (2**24, FEES, SigningLimits(None, 100 * GWEI, 10**20), None),
        (50_001, FEES, SigningLimits(50_000, 100 * GWEI, 10**18), Obstacle.BLOCK_GAS),
        (50_000, FEES, SigningLimits(50_000, 100 * GWEI, 10**18), None),
        (50_000, Fees(100 * GWEI + 1, 1), ROOMY, Obstacle.FEES),
        (50_000, Fees(100 * GWEI, 1), ROOMY, None),
        (50_000, Fees(GWEI, GWEI + 1), ROOMY, Obstacle.FEES),
        (50_000, FEES, SigningLimits(None, 100 * GWEI, 150_000 * GWEI - 1), Obstacle.FUNDS),
        (50_000, FEES, SigningLimits(None, 100 * GWEI, 150_000 * GWEI), None),
        (50_000, FEES, SigningLimits(None, 100 * GWEI, -5), Obstacle.FUNDS),
    ],
)
def test_each_limit_is_an_obstacle_of_its_own(
    gas: int, fees: Fees, limits: SigningLimits, expected: Obstacle | None
) -> None:
    assert obstacle(gas, b"\x01", fees, limits) is expected


def test_a_blocks_gas_by_the_word_of_one_node_is_no_permanent_obstacle() -> None:
    limits = SigningLimits(50_000, 100 * GWEI, 10**20, is_block_gas_confirmed=False)
    assert obstacle(50_000, b"", FEES, limits) is None
    assert obstacle(50_001, b"", FEES, limits) is Obstacle.BLOCK_GAS_UNCONFIRMED
    assert obstacle(2**24, b"", FEES, limits) is Obstacle.BLOCK_GAS_UNCONFIRMED
    assert obstacle(2**24 + 1, b"", FEES, limits) is Obstacle.BLOCK_GAS
    assert not Obstacle.BLOCK_GAS_UNCONFIRMED.is_permanent
    assert obstacle(2**24 + 1, b"", FEES, limits) is Obstacle.BLOCK_GAS, "whatever a block holds"


def test_only_permanent_obstacles_belong_to_a_transaction() -> None:
    assert {each for each in Obstacle if each.is_permanent} == {
        Obstacle.INTRINSIC_GAS,
        Obstacle.BLOCK_GAS,
    }


@pytest.mark.parametrize("count", [1, 2, 20, 99, 100])
def test_no_mint_of_any_size_is_below_the_floor_of_its_data(count: int) -> None:
    """At worst no byte of a reward is zero."""
    data = b"\xff" * (4 + 32 * (2 + 3 * count))
    assert min_gas_limit(data) <= ltz.mint_gas_limit(count) <= TRANSACTION_GAS_CAP


@given(
    st.integers(0, 40_000_000),
    st.binary(max_size=300),
    st.builds(Fees, st.integers(0, 200 * GWEI), st.integers(0, 200 * GWEI)),
    st.builds(
        SigningLimits,
        st.one_of(st.none(), st.integers(1, 40_000_000)),
        st.just(100 * GWEI),
        st.integers(-(10**18), 10**19),
    ),
)
def test_every_sendable_transaction_is_acceptable_to_nodes(
    gas: int, data: bytes, fees: Fees, limits: SigningLimits
) -> None:
    result = obstacle(gas, data, fees, limits)
    is_fine = (
        gas >= 21_000 + sum(10 if byte == 0 else 40 for byte in data)
        and gas <= 2**24
        and (limits.block_gas_limit is None or gas <= limits.block_gas_limit)
        and fees.max_priority_fee_per_gas <= fees.max_fee_per_gas <= limits.fee_cap
        and gas * fees.max_fee_per_gas <= limits.funds_wei
    )
    assert (result is None) is is_fine

"""Which wallet the treasury fills next: bounds hold for any balances."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.rules.operator.top_ups import OperatorBalance, TopUpPolicy, next_top_up
from ltzd.values import Address

POLICY = TopUpPolicy(top_up_wei=10, max_wei_per_day=35, floors={"mint": 100, "relay": 50})


def a_wallet(number: int, kind: str = "relay", balance: int = 0) -> OperatorBalance:
    return OperatorBalance(Address(bytes([number]) * 20), kind, balance, used=3, given_out=3)


LOW = a_wallet(1, balance=49)


def test_the_wallet_that_is_the_furthest_below_its_floor_comes_first() -> None:
    wallets = [a_wallet(1, "relay", 40), a_wallet(2, "mint", 60), a_wallet(3, "relay", 45)]

    assert next_top_up(wallets, 0, POLICY) == wallets[1].wallet


@pytest.mark.parametrize(
    ("wallet", "spent"),
    [
        (replace(LOW, balance=50), 0),
        (replace(LOW, has_open=True), 0),
        (replace(LOW, has_displaced=True), 0),
        (replace(LOW, used=4), 0),
        (replace(LOW, kind="treasury"), 0),
        (LOW, 26),
    ],
    ids=["at its floor", "open top-up", "displaced", "foreign nonce", "no floor", "day spent"],
)
def test_a_wallet_gets_no_top_up(wallet: OperatorBalance, spent: int) -> None:
    assert next_top_up([LOW], 0, POLICY) == LOW.wallet
    assert next_top_up([LOW], 25, POLICY) == LOW.wallet, "the last top-up of the day"
    assert next_top_up([wallet], spent, POLICY) is None


balances = st.builds(
    OperatorBalance,
    st.integers(1, 5).map(lambda number: Address(bytes([number]) * 20)),
    st.sampled_from(["mint", "relay", "treasury"]),
    st.integers(0, 120),
    st.integers(0, 3),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(st.lists(balances, max_size=5), max_size=30))
def test_no_sequence_of_balances_spends_more_than_the_day_allows(
    readings: list[list[OperatorBalance]],
) -> None:
    spent = 0
    for reading in readings:
        wallet = next_top_up(reading, spent, POLICY)
        if wallet is None:
            continue
        filled = [each for each in reading if each.wallet == wallet]
        assert any(
            each.balance < POLICY.floors.get(each.kind, 0)
            and not each.has_open
            and not each.is_in_foreign_hands
            for each in filled
        )
        spent += POLICY.top_up_wei
    assert spent <= POLICY.max_wei_per_day

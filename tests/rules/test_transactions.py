"""A transaction's life: what may follow what, whatever is observed in whatever order."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.errors import IllegalTransition
from ltzd.rules.transactions import (
    Accepted,
    Effect,
    Finalized,
    NonceTaken,
    Observation,
    Place,
    ReceiptLost,
    ReceiptSeen,
    State,
    Transaction,
    advance,
)
from ltzd.values import Hash32

HERE = Place(7, Hash32(b"\x07" * 32), succeeded=True)
THERE = Place(8, Hash32(b"\x08" * 32), succeeded=True)
FAILED = Place(7, Hash32(b"\x07" * 32), succeeded=False)

SETTLED = frozenset({State.CONFIRMED, State.REVERTED, State.DISPLACED})
OBSERVATIONS: list[Observation] = [
    Accepted(),
    ReceiptSeen(HERE),
    ReceiptSeen(THERE),
    ReceiptSeen(FAILED),
    ReceiptLost(),
    Finalized(),
    NonceTaken(),
]

_ALARMED = [Effect.REQUEUE, Effect.ALERT]
LISTED: dict[tuple[State, type[Observation]], tuple[State, list[Effect]]] = {
    (State.SIGNED, Accepted): (State.PUBLISHED, []),
    (State.PUBLISHED, Accepted): (State.PUBLISHED, []),
    (State.MINED, Accepted): (State.MINED, []),
    (State.SIGNED, ReceiptSeen): (State.MINED, []),
    (State.PUBLISHED, ReceiptSeen): (State.MINED, []),
    (State.MINED, ReceiptSeen): (State.MINED, []),
    (State.MINED, ReceiptLost): (State.PUBLISHED, [Effect.PUBLISH]),
    (State.MINED, Finalized): (State.CONFIRMED, []),
    (State.SIGNED, NonceTaken): (State.DISPLACED, _ALARMED),
    (State.PUBLISHED, NonceTaken): (State.DISPLACED, _ALARMED),
}
"""Every pair that is legal for a transaction that succeeded wherever it was mined."""


def a_transaction(state: State, place: Place = HERE) -> Transaction:
    has_place = state in {State.MINED, State.CONFIRMED, State.REVERTED}
    return Transaction(state, place if has_place else None)


@pytest.mark.parametrize(("state", "seen"), list(product(State, OBSERVATIONS)))
def test_every_pair_is_listed_or_illegal(state: State, seen: Observation) -> None:
    before = a_transaction(state)
    if (state, type(seen)) not in LISTED:
        with pytest.raises(IllegalTransition, match=state.name):
            advance(before, seen)
        assert before == a_transaction(state)
        return
    after, effects = advance(before, seen)
    assert (after.state, effects) == LISTED[state, type(seen)]


def test_a_receipt_says_where_a_transaction_is_and_a_later_one_moves_it() -> None:
    mined, _ = advance(a_transaction(State.PUBLISHED), ReceiptSeen(HERE))
    moved, _ = advance(mined, ReceiptSeen(THERE))

    assert (mined.place, moved.place) == (HERE, THERE)


def test_a_lost_receipt_leaves_no_place() -> None:
    demoted, _ = advance(a_transaction(State.MINED), ReceiptLost())

    assert demoted == Transaction(State.PUBLISHED, None)


def test_a_failed_call_that_is_final_gives_its_rewards_back() -> None:
    reverted, effects = advance(a_transaction(State.MINED, FAILED), Finalized())

    assert reverted == Transaction(State.REVERTED, FAILED)
    assert effects == _ALARMED


def test_a_failed_call_that_is_not_final_keeps_its_rewards() -> None:
    _, effects = advance(a_transaction(State.PUBLISHED), ReceiptSeen(FAILED))

    assert effects == []


def test_a_mined_transaction_of_unknown_place_cannot_become_final() -> None:
    with pytest.raises(IllegalTransition):
        advance(Transaction(State.MINED, None), Finalized())


places = st.builds(
    Place, st.integers(0, 9), st.binary(min_size=32, max_size=32).map(Hash32), st.booleans()
)
observations = st.lists(
    st.one_of(
        st.builds(ReceiptSeen, places),
        st.sampled_from([Accepted(), ReceiptLost(), Finalized(), NonceTaken()]),
    ),
    max_size=40,
)


@given(observations)
def test_whatever_is_observed_settled_stays_settled(seen: list[Observation]) -> None:
    tx = Transaction(State.SIGNED)
    requeued: list[State] = []
    for each in seen:
        before = tx
        try:
            tx, effects = advance(tx, each)
        except IllegalTransition:
            assert tx is before
            continue
        assert before.state not in SETTLED, "settled moved"
        assert tx.state is not State.SIGNED, "went back to signed"
        assert (tx.place is not None) == (
            tx.state in {State.MINED, State.CONFIRMED, State.REVERTED}
        )
        requeued += [tx.state for effect in effects if effect is Effect.REQUEUE]
    assert len(requeued) <= 1
    assert set(requeued) <= {State.REVERTED, State.DISPLACED}
    assert bool(requeued) == (tx.state in {State.REVERTED, State.DISPLACED})
    assert tx.state is not State.CONFIRMED or (tx.place is not None and tx.place.succeeded)

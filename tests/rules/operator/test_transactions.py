"""The states of a transaction: legal changes, for any observations in any order."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.errors import IllegalTransition
from ltzd.rules.operator.transactions import (
    Accepted,
    CancelRequested,
    Effect,
    FinalityLost,
    Finalized,
    Inclusion,
    MintingRevoked,
    NonceTaken,
    Observation,
    ReceiptLost,
    ReceiptSeen,
    RefusedForGood,
    State,
    Transaction,
    advance,
)
from ltzd.values import Hash32

HERE = Inclusion(7, Hash32(b"\x07" * 32), succeeded=True)
THERE = Inclusion(8, Hash32(b"\x08" * 32), succeeded=True)
FAILED = Inclusion(7, Hash32(b"\x07" * 32), succeeded=False)
CANCELLED = Inclusion(7, Hash32(b"\x07" * 32), succeeded=False, is_cancellation=True)
"""The inclusion of a self-transfer."""

SETTLED = frozenset(
    {State.CONFIRMED, State.REVERTED, State.DISPLACED, State.CANCELLED, State.VOIDED}
)
MINED = frozenset({State.MINED, State.CONFIRMED, State.REVERTED, State.CANCELLED})
OBSERVATIONS: list[Observation] = [
    Accepted(),
    RefusedForGood(),
    CancelRequested(),
    ReceiptSeen(HERE),
    ReceiptSeen(THERE),
    ReceiptSeen(FAILED),
    ReceiptLost(),
    Finalized(),
    FinalityLost(),
    NonceTaken(),
    MintingRevoked(),
]

_ALARMED = [Effect.REQUEUE, Effect.ALERT]
_GIVEN_UP = [Effect.CANCEL, Effect.ALERT]
LISTED: dict[tuple[State, type[Observation]], tuple[State, list[Effect]]] = {
    (State.SIGNED, Accepted): (State.PUBLISHED, []),
    (State.PUBLISHED, Accepted): (State.PUBLISHED, []),
    (State.MINED, Accepted): (State.MINED, []),
    (State.SIGNED, RefusedForGood): (State.SIGNED, _GIVEN_UP),
    (State.PUBLISHED, RefusedForGood): (State.PUBLISHED, _GIVEN_UP),
    (State.MINED, RefusedForGood): (State.MINED, []),
    (State.SIGNED, CancelRequested): (State.SIGNED, [Effect.CANCEL]),
    (State.PUBLISHED, CancelRequested): (State.PUBLISHED, [Effect.CANCEL]),
    (State.SIGNED, ReceiptSeen): (State.MINED, []),
    (State.PUBLISHED, ReceiptSeen): (State.MINED, []),
    (State.MINED, ReceiptSeen): (State.MINED, []),
    (State.MINED, ReceiptLost): (State.PUBLISHED, [Effect.PUBLISH]),
    (State.MINED, Finalized): (State.CONFIRMED, []),
    (State.CONFIRMED, FinalityLost): (State.MINED, []),
    (State.CANCELLED, FinalityLost): (State.MINED, []),
    (State.REVERTED, FinalityLost): (State.MINED, []),
    (State.SIGNED, NonceTaken): (State.DISPLACED, _ALARMED),
    (State.PUBLISHED, NonceTaken): (State.DISPLACED, _ALARMED),
    (State.SIGNED, MintingRevoked): (State.VOIDED, _ALARMED),
    (State.PUBLISHED, MintingRevoked): (State.VOIDED, _ALARMED),
}
"""The legal pairs for a transaction that succeeds wherever it is mined."""


def a_transaction(state: State, inclusion: Inclusion = HERE) -> Transaction:
    return Transaction(state, inclusion if state in MINED else None)


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


def test_a_receipt_sets_the_inclusion_and_a_later_receipt_moves_it() -> None:
    mined, _ = advance(a_transaction(State.PUBLISHED), ReceiptSeen(HERE))
    moved, _ = advance(mined, ReceiptSeen(THERE))

    assert (mined.inclusion, moved.inclusion) == (HERE, THERE)


def test_a_lost_receipt_clears_the_inclusion() -> None:
    demoted, _ = advance(a_transaction(State.MINED), ReceiptLost())

    assert demoted == Transaction(State.PUBLISHED, None)


def test_a_failed_call_requeues_its_rewards_once_final() -> None:
    reverted, effects = advance(a_transaction(State.MINED, FAILED), Finalized())

    assert reverted == Transaction(State.REVERTED, FAILED)
    assert effects == _ALARMED


def test_a_final_mint_of_which_rewards_were_skipped_renews_them() -> None:
    confirmed, effects = advance(a_transaction(State.MINED), Finalized(has_skipped=True))

    assert confirmed == Transaction(State.CONFIRMED, HERE)
    assert effects == [Effect.RENEW, Effect.ALERT]


def test_a_failed_call_that_is_not_final_keeps_its_rewards() -> None:
    _, effects = advance(a_transaction(State.PUBLISHED), ReceiptSeen(FAILED))

    assert effects == []


def test_a_mined_transaction_without_inclusion_cannot_become_final() -> None:
    with pytest.raises(IllegalTransition):
        advance(Transaction(State.MINED, None), Finalized())


def test_bytes_that_are_refused_for_good_give_their_nonce_to_a_self_transfer_once() -> None:
    abandoned, effects = advance(a_transaction(State.SIGNED), RefusedForGood())
    again, no_effects = advance(abandoned, RefusedForGood())

    assert (abandoned.state, abandoned.is_abandoned, effects) == (State.SIGNED, True, _GIVEN_UP)
    assert (again, no_effects) == (abandoned, [])


def test_a_self_transfer_requeues_the_work_once_final_and_not_before() -> None:
    abandoned = Transaction(State.PUBLISHED, is_abandoned=True)
    mined, nothing = advance(abandoned, ReceiptSeen(CANCELLED))
    final, effects = advance(mined, Finalized())

    assert (mined.state, nothing) == (State.MINED, [])
    assert (final.state, effects) == (State.CANCELLED, [Effect.REQUEUE])


def test_an_abandoned_call_that_is_mined_anyway_is_settled() -> None:
    abandoned = Transaction(State.PUBLISHED, is_abandoned=True)
    mined, _ = advance(abandoned, ReceiptSeen(HERE))
    final, effects = advance(mined, Finalized())

    assert (final.state, effects) == (State.CONFIRMED, [])


def test_after_a_reorg_the_self_transfer_is_published_again_and_not_the_call() -> None:
    mined = Transaction(State.MINED, CANCELLED, is_abandoned=True)

    assert advance(mined, ReceiptLost()) == (
        Transaction(State.PUBLISHED, is_abandoned=True),
        [Effect.PUBLISH],
    )


@pytest.mark.parametrize("state", [State.SIGNED, State.PUBLISHED, State.MINED])
def test_a_nonce_used_by_the_lanes_own_self_transfer_is_not_foreign(state: State) -> None:
    with pytest.raises(IllegalTransition):
        advance(a_transaction(state), ReceiptSeen(CANCELLED))


hashes = st.binary(min_size=32, max_size=32).map(Hash32)
inclusions = st.one_of(
    st.builds(Inclusion, st.integers(0, 9), hashes, st.booleans()),
    st.builds(
        Inclusion,
        st.integers(0, 9),
        hashes,
        st.just(False),
        st.none(),
        is_cancellation=st.just(True),
    ),
)
observations = st.lists(
    st.one_of(
        st.builds(ReceiptSeen, inclusions),
        st.sampled_from(
            [
                Accepted(),
                RefusedForGood(),
                CancelRequested(),
                ReceiptLost(),
                Finalized(),
                Finalized(has_skipped=True),
                NonceTaken(),
                MintingRevoked(),
            ]
        ),
    ),
    max_size=40,
)


@given(observations)
def test_a_settled_transaction_stays_settled(seen: list[Observation]) -> None:
    tx = Transaction(State.SIGNED)
    requeued: list[State] = []
    cancelled = 0
    for each in seen:
        before = tx
        try:
            tx, effects = advance(tx, each)
        except IllegalTransition:
            assert tx is before
            continue
        assert before.state not in SETTLED, "a settled transaction changed"
        assert tx.state is not State.SIGNED or before.state is State.SIGNED, (
            "a transaction returned to signed"
        )
        assert tx.is_abandoned or not before.is_abandoned, "an abandoned call was resumed"
        assert (tx.inclusion is not None) == (tx.state in MINED)
        assert Effect.RENEW not in effects or tx.state is State.CONFIRMED
        cancelled += effects.count(Effect.CANCEL)
        requeued += [tx.state for effect in effects if effect is Effect.REQUEUE]
    assert cancelled == tx.is_abandoned, "a self-transfer was made twice or without a reason"
    assert len(requeued) <= 1
    given_back = {State.REVERTED, State.DISPLACED, State.CANCELLED, State.VOIDED}
    assert set(requeued) <= given_back
    assert bool(requeued) == (tx.state in given_back)
    assert tx.state is not State.CONFIRMED or (tx.inclusion is not None and tx.inclusion.succeeded)
    assert tx.state is not State.CANCELLED or (
        tx.inclusion is not None and tx.inclusion.is_cancellation
    )

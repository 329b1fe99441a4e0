"""The state machine of a relay's row, and the status that its user is shown."""

from itertools import product

import pytest

from ltzd.errors import IllegalTransition
from ltzd.rules.operator.transactions import State
from ltzd.rules.relayer.calls import RelayStatus
from ltzd.rules.relayer.states import (
    NotSendable,
    RelayObservation,
    RelayState,
    Signed,
    TransactionMoved,
    Withdrawn,
    advance,
    charged_wei,
    status_of,
)

OVER = (
    State.MINED,
    State.CONFIRMED,
    State.REVERTED,
    State.DISPLACED,
    State.CANCELLED,
    State.VOIDED,
)
OBSERVATIONS: list[RelayObservation] = [
    Signed(),
    NotSendable(),
    Withdrawn(),
    *map(TransactionMoved, State),
    TransactionMoved(State.MINED, is_cancelled=True),
    TransactionMoved(State.CANCELLED, is_cancelled=True),
]
FOLLOWS = {TransactionMoved(state): RelayState.MINED for state in OVER} | {
    TransactionMoved(State.SIGNED): RelayState.SENT,
    TransactionMoved(State.PUBLISHED): RelayState.SENT,
    TransactionMoved(State.MINED, is_cancelled=True): RelayState.SENT,
    TransactionMoved(State.CANCELLED, is_cancelled=True): RelayState.MINED,
}
LISTED: dict[tuple[RelayState, RelayObservation], RelayState] = {
    (RelayState.QUEUED, Signed()): RelayState.SENT,
    (RelayState.QUEUED, NotSendable()): RelayState.FAILED,
    (RelayState.QUEUED, Withdrawn()): RelayState.WITHDRAWN,
    **{(RelayState.SENT, seen): state for seen, state in FOLLOWS.items()},
    **{(RelayState.MINED, seen): state for seen, state in FOLLOWS.items()},
}
"""Every legal pair."""


@pytest.mark.parametrize(("state", "seen"), list(product(RelayState, OBSERVATIONS)))
def test_every_pair_is_listed_or_illegal(state: RelayState, seen: RelayObservation) -> None:
    if (state, seen) in LISTED:
        assert advance(state, seen) is LISTED[state, seen]
        return
    with pytest.raises(IllegalTransition, match=state.name):
        advance(state, seen)


@pytest.mark.parametrize(
    ("state", "succeeded", "is_cancelled", "status"),
    [
        (State.SIGNED, None, False, RelayStatus.PENDING),
        (State.PUBLISHED, None, False, RelayStatus.PENDING),
        (State.MINED, True, False, RelayStatus.CONFIRMED),
        (State.MINED, False, False, RelayStatus.FAILED),
        (State.MINED, False, True, RelayStatus.PENDING),
        (State.CONFIRMED, True, False, RelayStatus.FINAL),
        (State.REVERTED, False, False, RelayStatus.FAILED),
        (State.DISPLACED, None, False, RelayStatus.FAILED),
        (State.CANCELLED, False, True, RelayStatus.FAILED),
        (State.VOIDED, None, False, RelayStatus.FAILED),
    ],
)
def test_a_user_is_shown_the_status_of_the_transaction(
    state: State, succeeded: bool | None, is_cancelled: bool, status: RelayStatus
) -> None:
    assert status_of(state, succeeded, is_cancelled=is_cancelled) is status


def test_a_relay_is_charged_its_worst_case_until_its_cost_is_known() -> None:
    assert charged_wei(State.PUBLISHED, None, 300) == 300
    assert charged_wei(State.MINED, 120, 300) == 120
    assert charged_wei(State.CANCELLED, 40, 300) == 40
    assert charged_wei(State.DISPLACED, None, 300) == 0

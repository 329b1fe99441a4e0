"""The status of a relay that its user is shown."""

import pytest

from ltzd.rules.operator.transactions import State
from ltzd.rules.relayer.calls import RelayStatus
from ltzd.rules.relayer.states import status_of


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

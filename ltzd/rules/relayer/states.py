"""The life of a relay's row, decided without I/O.

    QUEUED -> SENT <-> MINED
       |-> FAILED
       '-> WITHDRAWN  (the row is deleted)

A relay is QUEUED once it is admitted, and SENT once a lane has stored a signed transaction for it;
from then on it follows that transaction, back to SENT if a reorg unmines it. MINED also means that
it never will be mined: its nonce was used by another transaction, or a self-transfer that took the
nonce is past finality. A row that is written FAILED keeps the refusal of a call that would revert
for its idempotency key; a QUEUED relay that cannot be signed fails, too.

`advance` raises IllegalTransition for a pair that is not listed. The statements in
`store/relayer/relays.py` expect the same states, and `tests/store/relayer/test_relay_states.py`
runs every pair against them.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ltzd.errors import IllegalTransition
from ltzd.rules.operator.transactions import State
from ltzd.rules.relayer.calls import RelayStatus


class RelayState(Enum):
    QUEUED = "queued"
    SENT = "sent"
    MINED = "mined"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


IN_FLIGHT: Final = frozenset({RelayState.QUEUED, RelayState.SENT})
"""A relay in flight keeps its user's other claims and purchases waiting."""
SETTLED: Final = frozenset({RelayState.MINED, RelayState.FAILED})
"""A caller that waits for a relay is answered in these states."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A lane stores a signed transaction for the relay."""


@dataclass(frozen=True, slots=True)
class NotSendable:
    """No lane may sign the relay, whatever the fees: its gas limit fits no transaction."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The relay is taken back: no caller waits for it any longer."""


@dataclass(frozen=True, slots=True)
class TransactionMoved:
    """The relay's transaction has moved to `state`. `is_cancelled`: the self-transfer was mined."""

    state: State
    is_cancelled: bool = False


RelayObservation = Signed | NotSendable | Withdrawn | TransactionMoved


def advance(state: RelayState, seen: RelayObservation) -> RelayState:
    match state, seen:
        case RelayState.QUEUED, Signed():
            return RelayState.SENT
        case RelayState.QUEUED, NotSendable():
            return RelayState.FAILED
        case RelayState.QUEUED, Withdrawn():
            return RelayState.WITHDRAWN
        case RelayState.SENT | RelayState.MINED, TransactionMoved(transaction, is_cancelled):
            return RelayState.MINED if _is_over(transaction, is_cancelled) else RelayState.SENT
    raise IllegalTransition(f"{state.name} cannot apply {seen}")


def charged_wei(state: State, cost_wei: int | None, max_cost_wei: int) -> int:
    """Return what a relay counts in the gas budgets once its transaction has moved to `state`.

    `cost_wei` is the mined cost, None while it is unknown or a reorg has undone it.
    """
    if state is State.DISPLACED:
        return 0  # Another transaction used the nonce, so the operator paid nothing for this one.
    return max_cost_wei if cost_wei is None else cost_wei


def status_of(state: State, succeeded: bool | None, *, is_cancelled: bool) -> RelayStatus:
    """The status that the relay's user sees while its transaction is in `state`.

    A mined self-transfer is pending until it is final: a reorg may still bring the call back.
    """
    if not _is_over(state, is_cancelled):
        return RelayStatus.PENDING
    if not succeeded or state not in (State.MINED, State.CONFIRMED):
        return RelayStatus.FAILED
    return RelayStatus.CONFIRMED if state is State.MINED else RelayStatus.FINAL


def _is_over(state: State, is_cancelled: bool) -> bool:
    if state is State.MINED:
        return not is_cancelled
    return state not in (State.SIGNED, State.PUBLISHED)

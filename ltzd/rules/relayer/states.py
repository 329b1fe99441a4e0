"""The status of a relay that its user sees, and the states of its row.

    QUEUED -> SENT <-> MINED
       |-> FAILED
       '-> WITHDRAWN  (the row is deleted)

A relay is QUEUED once it is admitted, and SENT once a lane has stored a signed transaction for it;
from then on it follows that transaction, back to SENT if a reorg unmines it. MINED also means that
it never will be mined: its nonce was used by another transaction, or a self-transfer that took the
nonce is past finality. A row that is written FAILED keeps the refusal of a call that would revert
for its idempotency key; a QUEUED relay that cannot be signed fails, too.

The statements in `store/relayer/` change the states, and
`tests/store/relayer/test_relay_states.py` lists every change.
"""

from ltzd.rules.operator.transactions import State
from ltzd.rules.relayer.calls import RelayStatus


def status_of(state: State, succeeded: bool | None, *, is_cancelled: bool) -> RelayStatus:
    """The status that the relay's user sees while its transaction is in `state`.

    A mined self-transfer is pending until it is final: a reorg may still bring the call back.
    """
    if state in (State.SIGNED, State.PUBLISHED) or (state is State.MINED and is_cancelled):
        return RelayStatus.PENDING
    if not succeeded:
        return RelayStatus.FAILED
    return RelayStatus.CONFIRMED if state is State.MINED else RelayStatus.FINAL

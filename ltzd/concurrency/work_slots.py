"""Gives back the slot of a request while the request only waits for a block or a mint's hash.

HTTP bounds the requests that the process works on by slots (`rules/admission.py`). A request that
waits for a block uses no processor, so the code that begins the wait calls `release_held`. Tasks
that a request starts share its slot.
"""

from contextvars import ContextVar
from typing import Protocol


class WorkSlot(Protocol):
    def release(self) -> None:
        """Give the slot to the next request; a second call changes nothing."""
        ...


_HELD: ContextVar[WorkSlot | None] = ContextVar("work_slot", default=None)


def hold(slot: WorkSlot | None) -> None:
    """Make this the slot of the running task, and of tasks that it starts from now on."""
    _HELD.set(slot)


def release_held() -> None:
    """Release the slot of the running task. Does nothing if the task has none, or none any more."""
    slot = _HELD.get()
    if slot is not None:
        slot.release()

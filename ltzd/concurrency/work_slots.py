"""Gives back the slot of a request while it only waits, for a block or for another lane's hash.

HTTP bounds the requests that the process works on, by slots. A request that waits for a block works
on nothing, so the code that begins the wait calls `release_held`. Tasks that a request starts share
its slot.
"""

from contextvars import ContextVar
from typing import Protocol


class WorkSlot(Protocol):
    def release(self) -> None:
        """Give the slot to the next request; a second call changes nothing."""
        ...


_HELD: ContextVar[WorkSlot | None] = ContextVar("work_slot", default=None)


def hold(slot: WorkSlot | None) -> None:
    """From now on the running task, and tasks that it starts, work under this slot."""
    _HELD.set(slot)


def release_held() -> None:
    """Nothing happens outside a request, and for a request that has no slot any more."""
    slot = _HELD.get()
    if slot is not None:
        slot.release()

"""Gives back the slot of a request while the request waits for others.

HTTP bounds the requests that the process works on by slots (`rules/admission.py`). A request that
waits for a block or for a mint's hash uses no processor, so the code that begins the wait calls
`release_held`. A request that waits for an outside service keeps its slot for a moment, and gives
it back if the service is slow (`released_when_slow`). Tasks that a request starts share its slot.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

_SLOW_SECONDS = 0.25


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


@contextmanager
def released_when_slow() -> Iterator[None]:
    """Release the slot of the running task if the block takes longer than a quarter of a second.

    A service that hangs thus keeps no slots from other requests. A service that answers in time
    leaves the slot in place, which bounds the work that follows its answers.
    """
    timer = asyncio.get_running_loop().call_later(_SLOW_SECONDS, release_held)
    try:
        yield
    finally:
        timer.cancel()

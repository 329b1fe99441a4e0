"""The age of the oldest data that the running task has read for its answer, from a replica."""

from contextvars import ContextVar

_AGE: ContextVar[float | None] = ContextVar("answer_age", default=None)


def begin_answer() -> None:
    """Forget what this task has read: a new answer begins."""
    _AGE.set(None)


def note_age(seconds: float) -> None:
    """Record that a read may have returned data of this age."""
    _AGE.set(max(seconds, _AGE.get() or 0.0))


def answer_age() -> float | None:
    """The age of the oldest read in seconds, or None if every read returned the newest state."""
    return _AGE.get()

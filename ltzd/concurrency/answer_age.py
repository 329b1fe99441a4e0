"""The age of what the running code has read for its answer, if it did not read the newest state."""

from contextvars import ContextVar

_AGE: ContextVar[float | None] = ContextVar("answer_age", default=None)


def begin_answer() -> None:
    """From now on this task has read nothing old."""
    _AGE.set(None)


def note_age(seconds: float) -> None:
    """A read may have been so old; the oldest counts."""
    _AGE.set(max(seconds, _AGE.get() or 0.0))


def answer_age() -> float | None:
    """In seconds; None if everything was read from the newest state."""
    return _AGE.get()

"""An error as text for the log, without rows of the database."""

import traceback

from ltzd.errors import LtzdError


def loggable(error: BaseException) -> str:
    """The error for the log. A database error's own text holds the row, so it is left out."""
    kind = type(error).__name__
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate is not None:
        return f"{kind} {sqlstate} {getattr(error, 'constraint_name', None) or ''}".rstrip()
    return f"{kind}: {error}"


def loggable_reason(error: BaseException) -> str:
    """The reason of an outage: ltzd's own message, or PostgreSQL's refusal without the row."""
    return error.message if isinstance(error, LtzdError) else loggable(error)


def traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_tb(error.__traceback__))


def first_cause(error: BaseException) -> BaseException:
    """The error that ended a task group, an LtzdError if there is one; else the error itself."""
    while isinstance(error, BaseExceptionGroup):
        ltzd_errors, other_errors = error.split(LtzdError)
        error = (ltzd_errors or other_errors or error).exceptions[0]
    return error

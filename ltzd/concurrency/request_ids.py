"""The id of the HTTP request that the running task serves, for the log lines that it causes.

A task that a request starts inherits the id; the loops of the process have none. A batch holds the
items of many requests, so its log line pairs each item with the id of its request.
"""

from contextvars import ContextVar

from structlog.typing import EventDict, WrappedLogger

_REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)


def begin_request(request_id: str) -> None:
    """From now on every line that this task logs has `request_id`."""
    _REQUEST_ID.set(request_id)


def current_request_id() -> str | None:
    """Return None outside a request."""
    return _REQUEST_ID.get()


def add_request_id(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """A processor of structlog. A line that names a request itself keeps its id."""
    request_id = _REQUEST_ID.get()
    if request_id is not None:
        line.setdefault("request_id", request_id)
    return line

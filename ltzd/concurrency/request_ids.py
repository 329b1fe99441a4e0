"""The id of the HTTP request that the running code serves, for log lines of what it leads to.

A task that a request starts inherits its id; the loops of the process have none. A batch holds what
many requests asked for, so that its line pairs each item with the id of its request.
"""

from contextvars import ContextVar

import structlog

_REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)


def begin_request(request_id: str) -> None:
    """From now on every line that this task logs has `request_id`."""
    _REQUEST_ID.set(request_id)
    structlog.contextvars.bind_contextvars(request_id=request_id)


def current_request_id() -> str | None:
    """Returns None outside a request."""
    return _REQUEST_ID.get()

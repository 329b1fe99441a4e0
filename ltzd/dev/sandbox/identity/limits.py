"""The identity provider's rate limit on creating users.

The limit is off until a test sets it, since a demo and a load test create users faster than the
vendor allows.
"""

import math
import time
from collections import deque

from aiohttp import web

from ltzd.dev.sandbox.requests import allow_only, control_body, json_reply, whole_number_in

CONTROL_PATH = "/doors/identity-limit"

_WINDOW_SECONDS = 60.0
_MAX_LIMIT = 1_000_000


class UserLimit:
    """A sliding window of a minute; a limit of 0 is none."""

    def __init__(self) -> None:
        self._limit = 0
        self._created_at: deque[float] = deque()

    async def handle_control(self, request: web.Request) -> web.Response:
        """POST {"usersPerMinute"}."""
        body = await control_body(request)
        allow_only(body, "usersPerMinute")
        self._limit = whole_number_in(body, "usersPerMinute", 0, _MAX_LIMIT)
        self._created_at.clear()
        return json_reply({"usersPerMinute": self._limit})

    def refusal(self) -> web.Response | None:
        """Count one more user and return None, or return the 429."""
        now = time.monotonic()
        while self._created_at and self._created_at[0] <= now - _WINDOW_SECONDS:
            self._created_at.popleft()
        if not self._limit or len(self._created_at) < self._limit:
            self._created_at.append(now)
            return None
        reply = json_reply({"error": "Too many requests", "code": "too_many_requests"}, 429)
        wait = self._created_at[0] + _WINDOW_SECONDS - now
        reply.headers["Retry-After"] = str(math.ceil(wait))
        return reply

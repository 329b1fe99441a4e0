"""How many users the identity provider makes in a minute: the vendor's limit, lifted until a door
sets it, since a demo and a load test make more users at once than anybody's shop.
"""

import math
import time
from collections import deque

from aiohttp import web

from ltzd.dev.sandbox.requests import allow_only, control_body, json_reply, whole_number_in

DOOR = "/doors/identity-limit"
VENDORS_USERS_PER_MINUTE = 240

_WINDOW_SECONDS = 60.0
_MOST = 1_000_000


class UserLimit:
    """0 is no limit."""

    def __init__(self, users_per_minute: int = 0) -> None:
        self._most = users_per_minute
        self._made: deque[float] = deque()

    async def door(self, request: web.Request) -> web.Response:
        body = await control_body(request)
        allow_only(body, "usersPerMinute")
        self._most = whole_number_in(body, "usersPerMinute", 0, _MOST)
        self._made.clear()
        return json_reply({"usersPerMinute": self._most})

    def refusal(self) -> web.Response | None:
        """Counts one more user, or refuses him."""
        now = time.monotonic()
        while self._made and self._made[0] <= now - _WINDOW_SECONDS:
            self._made.popleft()
        if not self._most or len(self._made) < self._most:
            self._made.append(now)
            return None
        reply = json_reply({"error": "Too many requests", "code": "too_many_requests"}, 429)
        wait = self._made[0] + _WINDOW_SECONDS - now
        reply.headers["Retry-After"] = str(math.ceil(wait))
        return reply

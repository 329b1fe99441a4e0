"""The responses of the surfaces to the tests' requests."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WINDOW = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")


@dataclass(frozen=True)
class JsonResponse:
    """A response with its JSON body. A surface with further fields or errors has a subclass."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def window(self) -> tuple[int, int]:
        """The limit of a minute that the headers show, and how much of it is left."""
        return self.window_within(61)

    def window_within(self, seconds: float) -> tuple[int, int]:
        """The same for a limit whose window ends within `seconds`."""
        limit, remaining, reset = (int(self.headers[name]) for name in WINDOW)
        assert time.time() - 1 <= reset <= time.time() + seconds
        return limit, remaining


@dataclass(frozen=True)
class CodedResponse(JsonResponse):
    """A response of the relayer or of perk charges, whose errors have codes (spec 7.2)."""

    @property
    def code(self) -> tuple[int, str]:
        return self.status, self.body["code"]

    @property
    def faults(self) -> list[str]:
        """The list in the details of a 400 INVALID_FIELDS."""
        assert self.code == (400, "INVALID_FIELDS"), self.body
        faults: list[str] = self.body["details"]["errors"]
        return faults

"""Repeats of a request that may succeed later: growing pauses, each shortened at random.

A repeat that could not begin before the caller's deadline is not waited for: the failure is raised
at once. Only requests that are safe to repeat may be retried; that is for the caller to know.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from ltzd.concurrency.clock import loop_time
from ltzd.errors import Unavailable

Answer = TypeVar("Answer")

_jitter = secrets.SystemRandom()


class TransientFailure(Unavailable):
    """One attempt failed and another may succeed, `wait_seconds` later at the earliest.

    `reason` is fit for a log. The provider's client maps it to an error of its own: no caller of a
    provider sees this class.
    """

    def __init__(self, message: str, reason: str, wait_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.reason = reason
        self.wait_seconds = wait_seconds


class RetryPolicy(msgspec.Struct, frozen=True):
    """The pause before the first repeat is half to all of `first_pause_seconds`; later ones double.

    `max_attempts` counts the first request as well.
    """

    max_attempts: int
    first_pause_seconds: float


class Backoff:
    """The pauses of one call, which must end before `deadline`, in the event loop's time."""

    def __init__(self, policy: RetryPolicy, deadline: float) -> None:
        self._policy = policy
        self._deadline = deadline
        self._failed_attempts = 0

    async def pause(self, failure: TransientFailure) -> None:
        """Wait before the next attempt; raises `failure` if no attempt or no time is left."""
        self._failed_attempts += 1
        growing = self._policy.first_pause_seconds * 2 ** (self._failed_attempts - 1)
        seconds = max(failure.wait_seconds, growing * _jitter.uniform(0.5, 1.0))
        is_last = self._failed_attempts >= self._policy.max_attempts
        if is_last or loop_time() + seconds >= self._deadline:
            raise failure
        await asyncio.sleep(seconds)


async def with_retries(
    attempt: Callable[[], Awaitable[Answer]], policy: RetryPolicy, deadline: float
) -> Answer:
    """Return the first answer of `attempt`; raises the last TransientFailure if none comes."""
    backoff = Backoff(policy, deadline)
    while True:
        try:
            return await attempt()
        except TransientFailure as failure:
            await backoff.pause(failure)

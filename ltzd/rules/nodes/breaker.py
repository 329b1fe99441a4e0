"""When a failing node is not asked, and for how long.

The circuit opens after failures in a row and closes with the first answer. While it is open, one
probe after each pause asks whether the node is back; the pauses double. Units: seconds.
"""

import msgspec


class BreakerPolicy(msgspec.Struct, frozen=True):
    failures: int = 2
    """Failures in a row that open the circuit; one certain failure opens it at once."""
    first_pause: float = 0.5
    longest_pause: float = 5.0


class Breaker(msgspec.Struct, frozen=True):
    """`probe_at` is None while the circuit is closed."""

    failures: int = 0
    pause: float = 0.0
    probe_at: float | None = None

    @property
    def is_open(self) -> bool:
        return self.probe_at is not None


CLOSED = Breaker()


def after_failure(breaker: Breaker, now: float, policy: BreakerPolicy, weight: int = 1) -> Breaker:
    """The breaker after a failure that counts `weight` times.

    Failures of requests that were sent before the circuit opened do not lengthen the pause: only a
    failed probe does.
    """
    failures = breaker.failures + weight
    if failures < policy.failures:
        return Breaker(failures)
    if breaker.probe_at is not None and now < breaker.probe_at:
        return breaker
    pause = min(breaker.pause * 2 or policy.first_pause, policy.longest_pause)
    return Breaker(failures, pause, now + pause)

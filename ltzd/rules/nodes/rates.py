"""The rate of calls that a node accepts, learned from its refusals; time is the caller's clock.

The rate is unlimited until the node refuses a call as one too many. Then no call is sent until the
pause is over, and the rate falls to half of the last second's. Accepted calls raise it again: each
second at the full rate by a twentieth of that half, at least by half a call a second. A pause whose
length the node does not name begins at a quarter of a second, and doubles while the node refuses
further calls. If it accepts no call between two refusals, it refuses for another reason than the
rate, which then stays: a node that refuses everything for seconds is asked as before afterwards.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

_FIRST_PAUSE_SECONDS: Final = 0.25
_LONGEST_PAUSE_SECONDS: Final = 60.0
_LEAST_RATE: Final = 1.0
_UNLIMITED_RATE: Final = 2_000.0
_RISE_SECONDS: Final = 20
"""At the full rate for this long, a halved rate is what it was."""
_LEAST_STEP: Final = 0.5
_BURST_SECONDS: Final = 0.5
"""As many calls may be sent at once as the rate allows in this time."""
_LONGEST_DEBT_SECONDS: Final = 2.0
"""How long a large batch keeps the next call waiting at most."""


class Rate(msgspec.Struct, frozen=True):
    """`per_second` is None while the rate is unlimited. A batch counts as its number of calls."""

    per_second: float | None = None
    step: float = 0.0
    """The amount by which `per_second` rises in each second at the full rate."""
    paused_until: float = float("-inf")
    pause_seconds: float = _FIRST_PAUSE_SECONDS
    """The next pause if the node does not name its length."""
    free_at: float = float("-inf")
    """The time by which the rate allows all calls that were sent until now."""
    window_began: float = float("-inf")
    window_calls: int = 0
    last_window_calls: int = 0
    is_learning: bool = True
    """Whether the next refusal lowers the rate: the node has accepted a call since the last one."""


def ready_at(rate: Rate, now: float) -> float:
    """The earliest time at which another call may be sent; not before `now`."""
    return max(now, rate.paused_until, rate.free_at - _BURST_SECONDS)


def after_sending(rate: Rate, calls: int, now: float) -> Rate:
    """Count calls that are sent at `now`, which is at least `ready_at`."""
    counted = _counted(rate, calls, now)
    if rate.per_second is None:
        return counted
    free_at = max(now, rate.free_at) + calls / rate.per_second
    return replace(counted, free_at=min(free_at, now + _LONGEST_DEBT_SECONDS))


def after_acceptance(rate: Rate, calls: int) -> Rate:
    """The rate after the node answered calls."""
    if rate.per_second is None:
        return rate
    grown = rate.per_second + rate.step * calls / rate.per_second
    if grown >= _UNLIMITED_RATE:
        return replace(rate, per_second=None, pause_seconds=_FIRST_PAUSE_SECONDS, is_learning=True)
    first = _FIRST_PAUSE_SECONDS
    return replace(rate, per_second=grown, pause_seconds=first, is_learning=True)


def after_rate_refusal(rate: Rate, now: float, named_seconds: float | None = None) -> Rate:
    """The rate after the node refused a call; `named_seconds` is the pause that it asks for.

    Refusals during a pause belong to calls that were sent before it: they only extend the pause.
    """
    seconds = rate.pause_seconds if named_seconds is None else max(0.0, named_seconds)
    paused_until = max(rate.paused_until, now + min(seconds, _LONGEST_PAUSE_SECONDS))
    if now < rate.paused_until:
        longer = rate.paused_until if named_seconds is None else paused_until
        return replace(rate, paused_until=longer)
    pause_seconds = min(2 * rate.pause_seconds, _LONGEST_PAUSE_SECONDS)
    if not rate.is_learning:
        paused = replace(rate, paused_until=paused_until, free_at=paused_until)
        return replace(paused, pause_seconds=pause_seconds)
    current = max(rate.window_calls, rate.last_window_calls, 1)
    sent = float(current) if rate.per_second is None else min(rate.per_second, float(current))
    halved = max(_LEAST_RATE, sent / 2)
    return replace(
        rate,
        per_second=halved,
        step=max(_LEAST_STEP, halved / _RISE_SECONDS),
        paused_until=paused_until,
        pause_seconds=pause_seconds,
        free_at=paused_until,
        is_learning=False,
    )


def _counted(rate: Rate, calls: int, now: float) -> Rate:
    """Count calls by windows of one second."""
    elapsed = now - rate.window_began
    if elapsed < 1:
        return replace(rate, window_calls=rate.window_calls + calls)
    last = rate.window_calls if elapsed < 2 else 0
    return replace(rate, window_began=now, window_calls=calls, last_window_calls=last)

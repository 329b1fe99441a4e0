"""How much work a process has in progress at once, who gets the next slot, and who is refused.

A request holds a slot while the process works on it, and none while it waits for a block or for a
mint's hash. Requests without a slot are queued; if the queue is too long, a request is refused.
Callers are grouped in parties: a brand, or the callers of a surface who name no brand.

A queue is *standing* if requests keep arriving faster than they are served, rather than in a burst
that passes.

Units: seconds; requests.
"""

import math
from collections.abc import Iterable
from enum import Enum

import msgspec


class Urgency(Enum):
    """How a request is treated while the process has more work than it can do."""

    ALWAYS = "always"
    """Never waits and is never refused: health, and preflights."""
    FIRST = "first"
    """Goes before other requests: outcomes of accepted work, and payments."""
    QUICK = "quick"
    """Every other request."""
    PATIENT = "patient"
    """Waits for a block anyway, so a further wait of seconds does no harm: relays, redemptions."""

    # Enum's own hashes the name in Python, several times for each request.
    __hash__ = object.__hash__


class AdmissionPolicy(msgspec.Struct, frozen=True):
    """The number of slots is learned between `least` and `most`.

    PATIENT requests have as many slots of their own, but never fewer than `patient_least`, so that
    many of them share a commit. A *period* is a tenth of a second (`http/admission/gate.py`).
    """

    least: int = 96
    patient_least: int = 256
    most: int = 1_024
    step: int = 16
    """The slots added after a period in which requests waited and nothing was late."""
    shrink: float = 0.8
    """The factor by which the limit falls."""
    high_delay_seconds: float = 0.012
    """The limit falls if the mean delay of the event loop or of the database pool is longer."""
    low_delay_seconds: float = 0.006
    """The limit may rise if both mean delays are shorter."""
    busy_share: float = 0.85
    """The limit also falls if the event loop's thread computes for more than this part of the time:
    more requests at once would only take longer."""
    share: float = 3.0
    """A party may hold this many times the slots that are free, so that newcomers find some."""
    first_share: float = 0.5
    """The part of the slots that FIRST requests may hold while others wait."""
    burst: int = 1_024
    """The requests that may wait in a queue that is not standing."""
    standing_rounds: int = 10
    """A queue is standing once this number of requests for each slot have begun and the queue was
    never empty meanwhile. A database that answers nothing for a second causes no standing queue,
    neither then nor while the backlog is worked off."""
    calm_seconds: float = 1.0
    """A queue stays standing for this time after a refusal, if many requests are refused."""
    few_refused: float = 0.1
    """Refusals are many above this part of the requests. Fewer refusals come from a moment in which
    the process stood still, and must not cause further ones."""
    demand_fade: float = 0.8
    """The part of each party's count of requests that is left after a period."""
    most_shed: int = 96
    """The waiting requests of one queue that are refused in a period: a thousand at once would
    occupy the process for half a second."""
    shared: float = 0.98
    """The part of the served requests that is divided among the parties (`equal_part`)."""
    patient_burst: int = 8_192
    """As `burst`, for PATIENT requests."""
    patient_rounds: int = 16
    """As `standing_rounds`, for PATIENT requests."""
    patient_seconds: float = 8.0
    """How long a PATIENT request waits in a standing queue: its length is limited to as many
    requests as begin in this time."""
    longest_seconds: float = 5.0
    """A request that has waited for this long is refused, because nothing moves."""
    longest_patient_seconds: float = 30.0
    """As `longest_seconds`, for PATIENT requests."""
    most_retry_seconds: int = 10
    """The longest Retry-After that a refused caller gets."""

    def longest(self, urgency: Urgency) -> float:
        """The seconds after which a waiting request is refused."""
        is_patient = urgency is Urgency.PATIENT
        return self.longest_patient_seconds if is_patient else self.longest_seconds


def next_limit(
    limit: int,
    delay_seconds: float,
    busy_share: float,
    *,
    is_short: bool,
    policy: AdmissionPolicy,
) -> int:
    """The limit of slots for the next period.

    `delay_seconds` is the larger mean delay of the event loop and of the database pool,
    `busy_share` the part of the time in which the event loop's thread computed. `is_short`:
    requests waited for a slot. Requests that wait for other machines hold slots and delay nothing,
    so the limit rises for them.
    """
    if delay_seconds > policy.high_delay_seconds or busy_share > policy.busy_share:
        return max(policy.least, int(limit * policy.shrink))
    if is_short and delay_seconds < policy.low_delay_seconds:
        return min(policy.most, limit + policy.step)
    return limit


def may_begin(in_progress: int, free: int, policy: AdmissionPolicy) -> bool:
    """Whether a party with this number of slots may take another free one.

    A party that is alone gets three quarters of all slots. The more parties are busy, the fewer
    each gets, and some slots always stay free for the next party.
    """
    return free > 0 and in_progress < policy.share * free


def may_begin_first(
    in_progress: int, limit: int, *, others_wait: bool, policy: AdmissionPolicy
) -> bool:
    """Whether another FIRST request may precede the others; `in_progress` of them began."""
    return not others_wait or in_progress < policy.first_share * limit


def most_waiting(
    urgency: Urgency,
    *,
    limit: int,
    begun_per_second: float,
    stands: bool,
    policy: AdmissionPolicy,
) -> int:
    """How many requests of this urgency may wait.

    A short burst is served late rather than refused. A standing queue is kept to a third of the
    slots, so a request waits for about a third of the time that serving a request takes.
    """
    if urgency is Urgency.PATIENT:
        if not stands:
            return policy.patient_burst
        most = min(policy.patient_burst, int(begun_per_second * policy.patient_seconds))
        return max(most, policy.patient_least // 2)
    return min(policy.burst, limit // 3) if stands else policy.burst


def equal_part(requests: Iterable[float], served: float, policy: AdmissionPolicy) -> float:
    """The most requests with which a party gets all of them served: max-min fairness.

    `requests` has a count for each party. A party with few leaves the rest of its part to the
    others, which share it equally.
    """
    left, counts = policy.shared * served, sorted(requests)
    for position, count in enumerate(counts):
        part = left / (len(counts) - position)
        if count > part:
            return part
        left -= count
    return math.inf


def is_standing(urgency: Urgency, begun: int, limit: int, policy: AdmissionPolicy) -> bool:
    """Whether a queue is standing that was never empty while `begun` requests began."""
    is_patient = urgency is Urgency.PATIENT
    return begun > limit * (policy.patient_rounds if is_patient else policy.standing_rounds)


def retry_seconds(refused: int, begun: int, policy: AdmissionPolicy) -> int:
    """The whole seconds after which a refused caller should ask again, at least 1.

    `refused` and `begun` are counts over the same time. The more requests are refused for each that
    begins, the later a refused caller should return.
    """
    return max(1, min(policy.most_retry_seconds, math.ceil(refused / max(1, begun))))

"""How much work a process has in progress at once, who gets the next slot, and who is refused.

A request holds a slot while the process works on it, and none while it waits for a block or for a
mint's hash. Requests without a slot are queued; if the queue is too long, a request is refused.
Callers are grouped in parties: a brand, or the callers of a surface who name no brand.

Units: seconds; requests.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Urgency(Enum):
    """How a request is treated while the process has more work than it can do."""

    ALWAYS = "always"
    """Never waits and is never refused: health, and preflights."""
    FIRST = "first"
    """Goes before other requests: outcomes of accepted work, and payments."""
    QUICK = "quick"
    PATIENT = "patient"
    """Waits for a block anyway, so that a wait of seconds is no harm: relays and redemptions."""

    # Enum's own hashes the name in Python, several times for each request.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """The limit of slots is learned between `least` and `most`.

    PATIENT requests have slots of their own, so that many share a commit: as many as the others,
    and never fewer than `patient_least`.
    """

    least: int = 96
    patient_least: int = 256
    most: int = 1_024
    step: int = 16
    """The limit rises by so many slots in a period in which requests waited and nothing lagged."""
    shrink: float = 0.8
    high_delay_seconds: float = 0.012
    low_delay_seconds: float = 0.006
    """The limit falls above the one mean delay of the event loop or the pool, and may rise below
    the other."""
    busy_share: float = 0.85
    """The limit also falls while the process computes for this part of the time: more requests at
    once would only take longer."""
    share: float = 3.0
    """A party may hold this many times the slots that are free, so that newcomers find some."""
    first_share: float = 0.5
    """The part of the slots that requests of FIRST may hold while others wait."""
    burst: int = 1_024
    """Requests that may wait until the line stands."""
    standing_rounds: int = 10
    """A line stands once so many requests for each slot have begun while it was never empty. So a
    database that answers nothing for a second makes no line stand, nor does what it leaves."""
    calm_seconds: float = 1.0
    """A line goes on standing until so long after its last refusal among many."""
    few_refused: float = 0.1
    """Refusals are many from this part of the requests on. Fewer are left by a moment in which the
    process stood still, and must not be the reason for the next ones."""
    demand_fade: float = 0.8
    """The part of the counts of each party's requests that is left after a tenth of a second."""
    most_shed: int = 96
    """Waiting requests of a line that are refused in a tenth of a second: a thousand at once would
    keep the process from all else for half a second."""
    shared: float = 0.98
    """The part of what is served that equal parts are taken from."""
    patient_burst: int = 8_192
    patient_rounds: int = 16
    patient_seconds: float = 8.0
    """The wait of PATIENT requests in a line that stands."""
    longest_seconds: float = 5.0
    longest_patient_seconds: float = 30.0
    """A request that has waited for so long is refused: nothing moves."""
    most_retry_seconds: int = 10

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

    Alone it gets three quarters of all; with every other busy party each gets less, and some slots
    stay free for the next.
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

    A short burst is served late rather than refused. A standing queue is kept short: a served
    request has waited for about a third of the work in progress.
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
    """Whether the queue is standing: it was never empty while this number of requests began."""
    is_patient = urgency is Urgency.PATIENT
    return begun > limit * (policy.patient_rounds if is_patient else policy.standing_rounds)


def retry_seconds(refused: int, begun: int, policy: AdmissionPolicy) -> int:
    """Spreads refused requests over the seconds in which as many can be served."""
    return max(1, min(policy.most_retry_seconds, math.ceil(refused / max(1, begun))))

"""Bounds the requests that the process works on, and gives the slots in fair turns.

`run` measures how late and how busy the event loop is, learns the limit from that
(`rules/admission.py`), and refuses requests whose wait became too long. Without `run` the limit
stays as it is.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter, thread_time

import msgspec
import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.concurrency.futures import complete
from ltzd.errors import LtzdError, Overloaded, ShareExceeded
from ltzd.http.admission.demand import Demand
from ltzd.http.admission.turns import Turns
from ltzd.rules.admission import (
    AdmissionPolicy,
    Urgency,
    is_standing,
    may_begin,
    may_begin_first,
    most_waiting,
    next_limit,
    retry_seconds,
)

log = structlog.get_logger()

PERIOD_SECONDS = 0.1
_SAMPLES = 2
"""Samples of the event loop's delay in a period."""
_QUIET_SECONDS = 10.0
"""An overload ends after this time without a refusal. After as long without a request, everything
learned is old."""
_REST_SECONDS = 1.0
"""Between two periods after `_QUIET_SECONDS` without a request, if none comes."""
_RATE_WEIGHT = 0.3
_SHARE = telemetry.HTTP_SHED.labels("share")
_CAPACITY = telemetry.HTTP_SHED.labels("capacity")
DEFAULT_POLICY = AdmissionPolicy()


class Asker(msgspec.Struct, frozen=True):
    """The origin of a request.

    `party` is a brand, or all callers of a surface who name no brand. `caller` is one of the
    party's callers, such as an address.
    """

    urgency: Urgency
    party: str
    caller: str


class Slot:
    """The right to work on one request."""

    __slots__ = ("_asker", "_gate")

    def __init__(self, gate: "AdmissionGate", asker: Asker) -> None:
        self._gate: AdmissionGate | None = gate
        self._asker = asker

    def release(self) -> None:
        """Give the slot to the next request; a second call changes nothing."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.release(self._asker)


class _Waiting(msgspec.Struct, eq=False):
    asker: Asker
    future: asyncio.Future[Slot]
    since: float


class _Slots(msgspec.Struct):
    """The slots that are held, by party and in all."""

    held: Counter[str] = msgspec.field(default_factory=Counter)
    total: int = 0


class AdmissionGate:
    """`delay` returns the mean wait for a database connection since it was last called."""

    def __init__(
        self,
        policy: AdmissionPolicy = DEFAULT_POLICY,
        *,
        delay: Callable[[], float] = lambda: 0.0,
        clock: Clock = loop_time,
    ) -> None:
        self._policy = policy
        self._delay = delay
        self._clock = clock
        self._limit = min(policy.most, 2 * policy.least)
        self._slots, self._patient_slots = _Slots(), _Slots()
        self._first = 0
        self._queues: dict[Urgency, Turns[_Waiting]] = {
            urgency: Turns() for urgency in Urgency if urgency is not Urgency.ALWAYS
        }
        self._all_queues = tuple(self._queues.values())
        self._search_at: dict[Urgency, float] = dict.fromkeys(self._queues, -math.inf)
        """Before these times no request of a queue can have waited for too long."""
        self._begun_meanwhile: dict[Urgency, int] = {}
        """Requests that have begun since the queue was last empty."""
        self._demands = {urgency: Demand(policy) for urgency in self._queues}
        self._stood_at: dict[Urgency, float] = dict.fromkeys(self._queues, -math.inf)
        self._arriving: Counter[str] = Counter()
        """By party, requests whose bytes came in this turn of the event loop: their tasks have not
        run, so they neither hold slots nor wait."""
        self._arrived = 0
        self._begun: Counter[Urgency] = Counter()
        self._rates: dict[Urgency, float] = dict.fromkeys(self._queues, 0.0)
        self._refused = 0
        self._begun_lately = 0
        self._retry_seconds = 1
        self._was_short = False
        self._overload_began: float | None = None
        self._last_refusal = -math.inf
        self._refused_since = 0
        self._quiet_since: float | None = None
        self._has_request = asyncio.Event()

    @property
    def limit(self) -> int:
        """The most slots now, of requests that are not PATIENT."""
        return self._limit

    @property
    def in_progress(self) -> int:
        return self._slots.total + self._patient_slots.total

    @property
    def may_refuse(self) -> bool:
        """Whether a request whose bytes come now might be refused."""
        return self._arrived >= self._limit or self.is_crowded

    @property
    def is_crowded(self) -> bool:
        """Whether any request waits for a slot."""
        first, quick, patient = self._all_queues
        return bool(first.count or quick.count or patient.count)

    @property
    def refuses(self) -> bool:
        """Whether a request was refused in the last second."""
        return self._clock() - self._last_refusal < self._policy.calm_seconds

    @property
    def overloaded_seconds(self) -> float | None:
        """For how long requests have been refused, or None if none was in the last seconds."""
        if self._overload_began is None:
            return None
        return self._clock() - self._overload_began

    def waiting(self, urgency: Urgency) -> int:
        """The requests of this urgency that wait."""
        return len(self._queues[urgency])

    def try_begin(self, asker: Asker) -> Slot | None:
        """A slot at once, or None if the request must `wait`.

        Raises Overloaded, and ShareExceeded if others are served and this party has its share.
        """
        if self._is_free(asker):
            return self._slot(asker)
        refusal = self._refusal_in_queue(asker)
        if refusal is not None:
            self.count_refusal(refusal, asker)
            raise refusal
        return None

    async def wait(self, asker: Asker) -> Slot:
        """Wait in the queue for a slot. Raises as `try_begin` does."""
        begun = perf_counter()
        queue = self._queues[asker.urgency]
        if queue and len(queue) >= self._most(asker.urgency):
            # A party that waits with more gives up its newest request.
            self._refuse_one_of(asker.urgency)
        if not queue:
            self._begun_meanwhile[asker.urgency] = 0
        future: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(asker, future, self._clock())
        queue.add(asker.party, asker.caller, waiting)
        self._was_short = True
        try:
            return await future
        except asyncio.CancelledError:
            if not queue.remove(asker.party, asker.caller, waiting) and _has_slot(future):
                future.result().release()
            raise
        finally:
            telemetry.HTTP_QUEUE_SECONDS.observe(perf_counter() - begun)

    def refusal_of(self, asker: Asker, *, was_held: bool = False) -> LtzdError | None:
        """The refusal that this request gets, or None: then `arrived` must be called.

        `was_held`: its bytes have waited in the kernel for an unknown time. While requests are
        queued, such a request is refused.
        """
        if was_held and self._stands(asker.urgency):
            return self._refusal(asker)
        if self._is_free(asker):
            return None
        return self._refusal_in_queue(asker)

    def arrived(self, party: str = "") -> None:
        """Count a request that goes to the application, in this turn of the event loop."""
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._forget_arrivals)
        self._arrived += 1
        self._arriving[party] += 1

    def _forget_arrivals(self) -> None:
        """Runs before the tasks of these requests, which were woken later."""
        self._arrived = 0
        self._arriving.clear()

    def _refusal_in_queue(self, asker: Asker) -> LtzdError | None:
        queue = self._queues[asker.urgency]
        most = self._most(asker.urgency)
        free = self._limit_of(asker.urgency) - self._slots_of(asker.urgency).total
        without_slots = max(0, self._arrived - max(0, free))
        if len(queue) + without_slots < most:
            return None
        if self._may_exceed(asker.urgency) and self._demands[asker.urgency].is_modest(asker.party):
            return None
        own = queue.waiting_of(asker.party) + self._arriving[asker.party]
        parties = len(list(queue.parties())) + (own == 0)
        is_few = own < max(1, most // parties)
        if is_few and queue and own + 1 < queue.waiting_of(queue.longest()):
            return None
        return self._refusal(asker)

    def count_refusal(self, refusal: LtzdError, asker: Asker) -> None:
        """Count a refusal that the caller of `refusal_of` has sent."""
        self._demands[asker.urgency].refused(asker.party)
        self._refused += 1
        self._refused_since += 1
        self._last_refusal = self._clock()
        (_SHARE if isinstance(refusal, ShareExceeded) else _CAPACITY).inc()
        if self._overload_began is None:
            self._overload_began = self._last_refusal
            self._refused_since = 1
            log.warning(
                "http.overloaded",
                limit=self._limit,
                reason="more requests than this process can serve; the excess is refused",
            )

    def release(self, asker: Asker) -> None:
        """Called by slots alone."""
        slots = self._slots_of(asker.urgency)
        slots.held[asker.party] -= 1
        if not slots.held[asker.party]:
            del slots.held[asker.party]
        slots.total -= 1
        self._first -= asker.urgency is Urgency.FIRST
        if self.is_crowded:
            self._give_turns()

    async def run(self) -> None:
        """Measure, learn and refuse until cancelled."""
        while True:
            await self._rest()
            late, used = 0.0, thread_time()
            for _ in range(_SAMPLES):
                due = self._clock() + PERIOD_SECONDS / _SAMPLES
                await asyncio.sleep(PERIOD_SECONDS / _SAMPLES)
                late += max(0.0, self._clock() - due)
            self.adjust(late / _SAMPLES, (thread_time() - used) / PERIOD_SECONDS)

    async def _rest(self) -> None:
        """Let an idle process sleep: the next request ends the rest at once."""
        if self._quiet_since is None or self._clock() - self._quiet_since < _QUIET_SECONDS:
            return
        self._has_request.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_REST_SECONDS):
                await self._has_request.wait()

    def adjust(self, loop_delay_seconds: float, busy_share: float = 0.0) -> None:
        """Adapt the limit to the event loop's mean delay and load in the last period."""
        delay = max(loop_delay_seconds, self._delay())
        is_short = self._was_short or self.is_crowded
        self._was_short = False
        self._limit = next_limit(
            self._limit, delay, busy_share, is_short=is_short, policy=self._policy
        )
        now = self._clock()
        for urgency in self._queues:
            rate = self._begun[urgency] / PERIOD_SECONDS
            self._rates[urgency] += _RATE_WEIGHT * (rate - self._rates[urgency])
            self._demands[urgency].end_period()
        self._note_quiet(now)
        self._learn_retry_seconds(self._begun.total())
        self._begun.clear()
        self._give_turns()
        self._shorten(now)
        self._measure(loop_delay_seconds)
        if self._overload_began is not None and now - self._last_refusal > _QUIET_SECONDS:
            seconds = round(now - self._overload_began, 1)
            log.info("http.overload_over", seconds=seconds, refused=self._refused_since)
            self._overload_began = None

    def _note_quiet(self, now: float) -> None:
        if self._begun or self._refused or self.in_progress or self.is_crowded:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = now

    def _learn_retry_seconds(self, begun: int) -> None:
        self._begun_lately = self._begun_lately // 2 + begun
        self._retry_seconds = retry_seconds(self._refused, self._begun_lately, self._policy)
        self._refused //= 2

    def _measure(self, loop_delay_seconds: float) -> None:
        telemetry.HTTP_WORK_LIMIT.set(self._limit)
        telemetry.HTTP_IN_PROGRESS.set(self.in_progress)
        telemetry.EVENT_LOOP_DELAY.set(loop_delay_seconds)
        for urgency, queue in self._queues.items():
            telemetry.HTTP_WAITING.labels(urgency.value).set(len(queue))

    def _shorten(self, now: float) -> None:
        """Refuse what a standing queue has too much of, and what has waited for too long."""
        for urgency, queue in self._queues.items():
            excess = min(len(queue) - self._most(urgency), self._policy.most_shed)
            for _ in range(excess):
                if not self._refuse_one_of(urgency):
                    break
            longest = self._policy.longest(urgency)
            if not queue or now < self._search_at[urgency]:
                continue
            oldest = now
            for party, caller, waiting in queue.items():
                if now - waiting.since <= longest:
                    oldest = min(oldest, waiting.since)
                elif queue.remove(party, caller, waiting):
                    self._refuse(waiting)
            self._search_at[urgency] = oldest + longest

    def _refuse_one_of(self, urgency: Urgency) -> bool:
        """Refuse the newest request of the party that waits with most, of those that ask for more
        than their part. Returns False if only requests of modest parties wait, and may.
        """
        queue, demand = self._queues[urgency], self._demands[urgency]
        greedy = [party for party in queue.parties() if not demand.is_modest(party)]
        if not greedy and self._may_exceed(urgency):
            return False
        self._refuse(queue.drop(max(greedy or queue.parties(), key=queue.waiting_of)))
        return True

    def _may_exceed(self, urgency: Urgency) -> bool:
        """Whether the queue may be longer than it should for parties that ask for their part only.

        Together they ask for less than is served, so that their requests wait for a moment.
        """
        return len(self._queues[urgency]) < self._burst_of(urgency)

    def _burst_of(self, urgency: Urgency) -> int:
        is_patient = urgency is Urgency.PATIENT
        return self._policy.patient_burst if is_patient else self._policy.burst

    def _refuse(self, waiting: _Waiting) -> None:
        if waiting.future.done():  # its caller has gone
            return
        refusal = self._refusal(waiting.asker)
        self.count_refusal(refusal, waiting.asker)
        complete(waiting.future, refusal)

    def _refusal(self, asker: Asker) -> LtzdError:
        """A party is told of its share if others are served beside it."""
        if self._stands(asker.urgency) and self._demands[asker.urgency].is_refused:
            self._stood_at[asker.urgency] = self._clock()
        seconds, slots = self._retry_seconds, self._slots_of(asker.urgency)
        own = slots.held[asker.party]
        if own < slots.total and own >= slots.total / len(slots.held):
            return ShareExceeded(
                "Too many requests",
                message="The service is busy, and these requests are more than an equal share; "
                f"try again in {seconds} s",
                reason="busy",
                retryAfterSeconds=seconds,
            )
        return Overloaded(
            "The process has more requests than it can serve", retryAfterSeconds=seconds
        )

    def _slots_of(self, urgency: Urgency) -> _Slots:
        return self._patient_slots if urgency is Urgency.PATIENT else self._slots

    def _limit_of(self, urgency: Urgency) -> int:
        is_patient = urgency is Urgency.PATIENT
        return max(self._limit, self._policy.patient_least) if is_patient else self._limit

    def _stands(self, urgency: Urgency) -> bool:
        return self._clock() - self._stood_at[urgency] < self._policy.calm_seconds

    def _most(self, urgency: Urgency) -> int:
        begun = self._begun_meanwhile.get(urgency, 0)
        if is_standing(urgency, begun, self._limit_of(urgency), self._policy):
            self._stood_at[urgency] = self._clock()
        return most_waiting(
            urgency,
            limit=self._limit_of(urgency),
            begun_per_second=self._rates[urgency],
            stands=self._stands(urgency),
            policy=self._policy,
        )

    def _is_free(self, asker: Asker) -> bool:
        """Whether the request may begin now, before none of its party's that wait."""
        queue = self._queues[asker.urgency]
        may_pass = not queue.count or not queue.waiting_of(asker.party)
        return may_pass and self._has_room(asker)

    def _has_room(self, asker: Asker) -> bool:
        slots = self._slots_of(asker.urgency)
        free = self._limit_of(asker.urgency) - slots.total - self._arrived
        if asker.urgency is Urgency.FIRST:
            return free > 0 and self._may_begin_first()
        own = slots.held[asker.party] + self._arriving[asker.party]
        return may_begin(own, free, self._policy)

    def _slot(self, asker: Asker) -> Slot:
        slots = self._slots_of(asker.urgency)
        slots.held[asker.party] += 1
        slots.total += 1
        self._first += asker.urgency is Urgency.FIRST
        self._begun[asker.urgency] += 1
        self._has_request.set()
        self._demands[asker.urgency].served(asker.party)
        if self.is_crowded:
            for urgency, queue in self._queues.items():
                if queue:
                    self._begun_meanwhile[urgency] += 1
        return Slot(self, asker)

    def _give_turns(self) -> None:
        while (waiting := self._next()) is not None:
            if not waiting.future.done():  # else its caller has gone
                waiting.future.set_result(self._slot(waiting.asker))

    def _next(self) -> _Waiting | None:
        """Take the next request that may begin: of FIRST, then of the party with fewest slots."""
        first = self._queues[Urgency.FIRST]
        if first and self._slots.total < self._limit and self._may_begin_first():
            return first.take(min(first.parties(), key=self._slots.held.__getitem__))
        return self._next_in(Urgency.QUICK) or self._next_in(Urgency.PATIENT)

    def _next_in(self, urgency: Urgency) -> _Waiting | None:
        queue, slots = self._queues[urgency], self._slots_of(urgency)
        free = self._limit_of(urgency) - slots.total
        if not queue or free <= 0:
            return None
        party = min(queue.parties(), key=slots.held.__getitem__)
        return queue.take(party) if may_begin(slots.held[party], free, self._policy) else None

    def _may_begin_first(self) -> bool:
        others_wait = bool(self._queues[Urgency.QUICK])
        return may_begin_first(
            self._first, self._limit, others_wait=others_wait, policy=self._policy
        )


def _has_slot(future: asyncio.Future[Slot]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None

"""The gate: slots, turns, refusals, and that every slot comes back."""

import asyncio
import contextlib
import random
from collections import Counter, deque
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from ltzd.concurrency import work_slots
from ltzd.errors import Overloaded, ShareExceeded
from ltzd.http.admission import gate as gate_module
from ltzd.http.admission.gate import AdmissionGate, Asker, Slot
from ltzd.rules.admission import AdmissionPolicy, Urgency
from tests.support.clocks import ManualClock
from tests.support.waiting import until

POLICY = AdmissionPolicy(
    least=8, patient_least=8, most=32, step=0, burst=6, patient_burst=40, calm_seconds=1.0
)


def a_gate(clock: ManualClock | None = None, **changes: int) -> AdmissionGate:
    """Sixteen slots, of which a party alone gets twelve, and a line of six."""
    return AdmissionGate(replace(POLICY, **changes), clock=clock or ManualClock())


def asker(party: str = "a", caller: str = "1", urgency: Urgency = Urgency.QUICK) -> Asker:
    return Asker(urgency, party, caller)


def begun(gate: AdmissionGate, who: Asker) -> Slot:
    slot = gate.try_begin(who)
    assert slot is not None
    return slot


def fill(gate: AdmissionGate, who: Asker) -> list[Slot]:
    """Takes every slot that this party gets at once."""
    slots = []
    while (slot := gate.try_begin(who)) is not None:
        slots.append(slot)
    return slots


async def waiting(gate: AdmissionGate, who: Asker, count: int = 1) -> list["asyncio.Task[Slot]"]:
    tasks = [asyncio.create_task(gate.wait(who)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_a_party_alone_leaves_slots_for_the_next() -> None:
    gate = a_gate()
    assert len(fill(gate, asker("a"))) == 12
    assert len(fill(gate, asker("b"))) == 3
    assert gate.in_progress == 15


async def test_a_released_slot_goes_to_the_party_with_fewest() -> None:
    gate = a_gate()
    of_a = fill(gate, asker("a"))
    of_b = fill(gate, asker("b"))
    waits_a = await waiting(gate, asker("a"), 2)
    waits_b = await waiting(gate, asker("b"), 2)
    for slot in of_a[:2]:
        slot.release()
    await asyncio.sleep(0)
    assert [task.done() for task in waits_a + waits_b] == [False, False, True, True]
    for slot in of_a[2:] + of_b:
        slot.release()
    slots = await asyncio.gather(*waits_a, *waits_b)
    for slot in slots:
        slot.release()
    assert gate.in_progress == 0


async def test_callers_of_one_party_take_turns() -> None:
    gate = a_gate(burst=100)
    held = fill(gate, asker("a", "greedy"))
    greedy = await waiting(gate, asker("a", "greedy"), 20)
    modest = await waiting(gate, asker("a", "modest"))
    for slot in held[:2]:
        slot.release()
    assert (await modest[0]) is not None
    assert sum(task.done() for task in greedy) == 1
    for task in greedy:
        task.cancel()


async def test_a_line_that_is_full_refuses_the_party_that_fills_it() -> None:
    gate = a_gate()
    fill(gate, asker("a"))
    tasks = await waiting(gate, asker("a"), 6)
    with pytest.raises(Overloaded) as alone:
        gate.try_begin(asker("a"))
    assert alone.value.details == {"retryAfterSeconds": 1}
    fill(gate, asker("b"))
    with pytest.raises(ShareExceeded) as beside:
        gate.try_begin(asker("a"))
    assert beside.value.details["reason"] == "busy"
    assert gate.try_begin(asker("b")) is None  # it may wait: the other party gives up a place
    (task,) = await waiting(gate, asker("b"))
    await asyncio.sleep(0)
    assert isinstance(tasks[-1].exception(), ShareExceeded)
    for each in (*tasks[:-1], task):
        each.cancel()


async def test_a_line_that_stands_is_shortened() -> None:
    gate = a_gate(burst=40, standing_rounds=1)
    held = fill(gate, asker("a"))
    tasks = await waiting(gate, asker("a"), 40)
    for _ in range(17):  # as many as a round of slots begin, and the line is never empty
        held.pop(0).release()
        await asyncio.sleep(0)
        held += [task.result() for task in tasks if task.done()]
        tasks = [task for task in tasks if not task.done()]
    assert gate.waiting(Urgency.QUICK) == 23
    gate.adjust(0.0)
    await asyncio.sleep(0)
    assert gate.waiting(Urgency.QUICK) == 5
    refused = [task for task in tasks if task.done()]
    assert [type(task.exception()) for task in refused] == [Overloaded] * 18
    for task in tasks:
        task.cancel()


async def test_a_long_line_is_shortened_over_several_periods() -> None:
    """Each refusal costs time, in which nobody would be served."""
    gate = AdmissionGate(replace(POLICY, burst=40, standing_rounds=0, most_shed=10))
    fill(gate, asker("a"))
    tasks = await waiting(gate, asker("a"), 40)
    begun(gate, asker("b")).release()
    left = []
    for _ in range(5):
        gate.adjust(0.0)
        left.append(gate.waiting(Urgency.QUICK))
    assert left == [30, 20, 10, 5, 5]
    for task in tasks:
        task.cancel()


async def test_a_line_that_stood_allows_no_burst_until_its_refusals_have_ended() -> None:
    clock = ManualClock()
    gate = a_gate(clock, burst=40, standing_rounds=1)
    held = fill(gate, asker())
    tasks = await waiting(gate, asker(), 40)
    for _ in range(17):
        held.pop(0).release()
        await asyncio.sleep(0)
        held += [task.result() for task in tasks if task.done()]
        tasks = [task for task in tasks if not task.done()]
    gate.adjust(0.0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert not gate.is_crowded

    for _ in range(3):  # each refusal comes within a second after the one before
        clock.now += 0.9
        tasks = await waiting(gate, asker(), 8)
        with pytest.raises(Overloaded):
            gate.try_begin(asker())
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    clock.now += 1.1
    tasks = await waiting(gate, asker(), 20)
    assert gate.waiting(Urgency.QUICK) == 20
    for task in tasks:
        task.cancel()


async def test_a_party_within_its_part_is_served_whole_beside_a_flood() -> None:
    """Also if its requests come in bursts that are longer than its part of the line."""
    clock = ManualClock()
    gate = a_gate(clock, burst=100, standing_rounds=1)
    served, refused = await under_flood(gate, clock, others=("b", "c", "d", "e"))
    assert refused["a"] > 4_000, "the flood"
    assert {party: count for party, count in refused.items() if party != "a"} == {}
    assert {party: served[party] for party in "bcde"} == dict.fromkeys("bcde", 40 * 4)
    assert served["a"] > 40 * 4, "the rest"


async def test_a_party_that_floods_too_is_refused_as_the_first_one() -> None:
    clock = ManualClock()
    gate = a_gate(clock, burst=100, standing_rounds=1)
    served, refused = await under_flood(gate, clock, others=("b",), burst=60)
    assert min(refused["a"], refused["b"]) > 40 * 30
    assert abs(served["a"] - served["b"]) < 0.1 * served["a"]


async def under_flood(
    gate: AdmissionGate, clock: ManualClock, others: Sequence[str], burst: int = 4
) -> tuple[Counter[str], Counter[str]]:
    """Requests served and refused, by party, in forty periods after the first twenty.

    In a period party a sends 120 requests, each other party a burst, and then all slots are
    released, and what has waited is answered.
    """
    served: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    held: deque[Slot] = deque()
    tasks: set[asyncio.Task[None]] = set()

    async def request(party: str, *, counts: bool) -> None:
        who = asker(party)
        try:
            slot = gate.try_begin(who) or await gate.wait(who)
        except (Overloaded, ShareExceeded):
            refused[party] += counts
            return
        served[party] += counts
        held.append(slot)

    for period in range(60):
        bursts = [("a", 120), *((other, burst) for other in others)]
        for party, count in bursts if period % 2 else reversed(bursts):
            tasks |= {
                asyncio.create_task(request(party, counts=period >= 20)) for _ in range(count)
            }
            await asyncio.sleep(0)
        for _ in range(40):
            if held:
                held.popleft().release()
                await asyncio.sleep(0)
        clock.now += 0.1
        gate.adjust(0.0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return served, refused


async def test_a_few_refusals_keep_no_line_standing() -> None:
    """They are left by moments in which the process stood still, at a load that it can serve."""
    clock = ManualClock()
    gate = a_gate(clock, burst=100, standing_rounds=1)
    await under_flood(gate, clock, others=())
    refusals = 0
    for period in range(40):
        for _ in range(40):
            begun(gate, asker()).release()
        if period % 5 == 0:
            held = fill(gate, asker())
            tasks = await waiting(gate, asker(), 5)
            with contextlib.suppress(Overloaded):
                gate.try_begin(asker())
                refusals -= 1
            refusals += 1
            for slot in held:
                slot.release()
            for task in tasks:
                (await task).release()
        clock.now += 0.1
        gate.adjust(0.0)
    assert 0 < refusals < 8
    held = fill(gate, asker())
    tasks = await waiting(gate, asker(), 50)
    assert gate.waiting(Urgency.QUICK) == 50
    for task in tasks:
        task.cancel()


async def test_what_has_waited_in_the_kernel_is_refused_while_a_line_stands() -> None:
    clock = ManualClock()
    gate = a_gate(clock, standing_rounds=0)
    held = fill(gate, asker())
    (task,) = await waiting(gate, asker())
    await waiting(gate, asker(), 2)
    held.pop().release()
    held.append(await task)
    gate.adjust(0.0)
    for slot in held:
        slot.release()
    assert gate.refusal_of(asker()) is None
    assert isinstance(gate.refusal_of(asker(), was_held=True), Overloaded)
    clock.now += 1.1
    assert gate.refusal_of(asker(), was_held=True) is None


async def test_relays_and_other_requests_take_no_slots_from_each_other() -> None:
    gate = a_gate(patient_least=24)
    relay = asker("relayer", urgency=Urgency.PATIENT)
    assert len(fill(gate, relay)) == 18
    assert len(fill(gate, asker())) == 12
    (waits,) = await waiting(gate, relay)
    quick = begun(gate, asker("b"))
    quick.release()
    await asyncio.sleep(0)
    assert not waits.done()
    waits.cancel()


async def test_a_request_that_has_waited_too_long_is_refused() -> None:
    clock = ManualClock()
    gate = a_gate(clock)
    fill(gate, asker("a"))
    tasks = await waiting(gate, asker("a"), 6)
    clock.now += POLICY.longest_seconds + 1
    gate.adjust(0.0)
    await asyncio.sleep(0)
    assert [type(task.exception()) for task in tasks] == [Overloaded] * 6
    assert not gate.is_crowded


async def test_each_request_is_refused_after_its_own_wait() -> None:
    clock = ManualClock()
    gate = a_gate(clock)
    fill(gate, asker("a"))
    (older,) = await waiting(gate, asker("a"))
    clock.now += POLICY.longest_seconds - 1
    gate.adjust(0.0)
    (newer,) = await waiting(gate, asker("a"))
    for seconds, are_done in ((0.5, [False, False]), (1.0, [True, False])):
        clock.now += seconds
        gate.adjust(0.0)
        await asyncio.sleep(0)
        assert [task.done() for task in (older, newer)] == are_done
    clock.now += POLICY.longest_seconds - 1
    gate.adjust(0.0)
    await asyncio.sleep(0)
    assert type(newer.exception()) is Overloaded


async def test_reads_of_outcomes_go_before_others() -> None:
    gate = a_gate(burst=50)
    held = fill(gate, asker("a")) + fill(gate, asker("b"))
    held += fill(gate, asker("c"))
    quick = await waiting(gate, asker("d"), 3)
    first = await waiting(gate, asker("relayer", urgency=Urgency.FIRST), 3)
    for slot in held[:3]:
        slot.release()
    await asyncio.sleep(0)
    assert all(task.done() for task in first)
    assert not any(task.done() for task in quick)
    for task in quick:
        task.cancel()


async def test_a_caller_that_leaves_keeps_no_place_and_no_slot() -> None:
    gate = a_gate()
    held = fill(gate, asker("a"))
    before, after = await waiting(gate, asker("a"), 2)
    before.cancel()
    await asyncio.sleep(0)
    assert gate.waiting(Urgency.QUICK) == 1
    held[0].release()  # gives the turn to a caller that leaves in the same moment
    after.cancel()
    await asyncio.wait({before, after})
    assert gate.in_progress == len(held) - 1


async def test_a_request_that_waits_for_a_block_has_given_its_slot_back() -> None:
    gate = a_gate()
    slot = begun(gate, asker())
    work_slots.hold(slot)
    await asyncio.gather(_waits_for_a_block(), _waits_for_a_block())
    assert gate.in_progress == 0
    slot.release()
    assert gate.in_progress == 0


async def _waits_for_a_block() -> None:
    work_slots.release_held()


async def test_an_overload_is_told_while_it_lasts() -> None:
    clock = ManualClock()
    gate = a_gate(clock)
    assert overload_of(gate) is None
    fill(gate, asker())
    tasks = await waiting(gate, asker(), 6)
    for _ in range(3):
        with pytest.raises(Overloaded):
            gate.try_begin(asker())
        clock.now += 4.0
        gate.adjust(0.0)
        tasks += await waiting(gate, asker(), 6 - gate.waiting(Urgency.QUICK))
    assert overload_of(gate) == 12.0
    for task in tasks:
        task.cancel()
    clock.now += 30.0
    gate.adjust(0.0)
    assert overload_of(gate) is None


def overload_of(gate: AdmissionGate) -> float | None:
    return gate.overloaded_seconds


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_happens_every_slot_comes_back(seed: int) -> None:
    rng = random.Random(seed)
    gate = a_gate(ManualClock(), burst=2, patient_burst=2)
    outcomes: Counter[str] = Counter()

    async def request() -> None:
        who = asker(rng.choice("abc"), rng.choice("12"), rng.choice(list(Urgency)[1:]))
        try:
            slot = gate.try_begin(who) or await gate.wait(who)
        except (Overloaded, ShareExceeded):
            outcomes["refused"] += 1
            return
        try:
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            assert gate.in_progress <= POLICY.most
        finally:
            slot.release()
        outcomes["served"] += 1

    tasks = []
    for _ in range(400):
        tasks.append(asyncio.create_task(request()))
        if rng.random() < 0.2:
            await asyncio.sleep(0)
        if rng.random() < 0.1:
            rng.choice(tasks).cancel()
        if rng.random() < 0.05:
            gate.adjust(rng.choice((0.0, 0.1)))
    await asyncio.wait(tasks)
    assert outcomes["served"] > 50
    assert outcomes["refused"] > 0
    assert gate.in_progress == 0
    assert not gate.is_crowded


class CountingGate(AdmissionGate):
    """Counts its periods."""

    periods = 0

    def adjust(self, loop_delay_seconds: float, busy_share: float = 0.0) -> None:
        self.periods += 1
        super().adjust(loop_delay_seconds, busy_share)

    async def has_begun_another(self) -> bool:
        return self.periods > 1


async def test_a_gate_without_requests_rests_until_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate_module, "_REST_SECONDS", 60.0)
    clock = ManualClock()
    gate = CountingGate(POLICY, clock=clock)
    gate.adjust(0.0)
    clock.now += 11.0
    running = asyncio.create_task(gate.run())
    try:
        period = asyncio.create_task(until(gate.has_begun_another))
        await asyncio.wait({period}, timeout=0.3)
        assert not period.done(), "it rests"
        begun(gate, asker())
        await period
    finally:
        running.cancel()
        await asyncio.wait({running})

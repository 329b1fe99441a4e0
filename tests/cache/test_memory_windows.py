"""Windows in memory count like a list of all hits does, and like the `limits` library."""

import tracemalloc
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage, memory
from limits.aio.strategies import FixedWindowRateLimiter

from ltzd.cache.memory_windows import MAX_WINDOWS, MemoryWindows

SECONDS = (1, 7, 60)
NAMES = (b"a", b"b", b"c")
hits = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(SECONDS),
        st.sampled_from((0.0, 0.25, 1.0, 5.5, 59.75, 60.0)),
    ),
    max_size=60,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class NaiveWindows:
    """Every window ever begun, searched from the newest on."""

    def __init__(self) -> None:
        self.windows: list[tuple[bytes, int, float, list[float]]] = []

    def hit(self, name: bytes, seconds: int, now: float) -> tuple[int, float]:
        for known, length, began, seen in reversed(self.windows):
            if (known, length) == (name, seconds) and now < began + length:
                seen.append(now)
                return len(seen), began + length - now
        self.windows.append((name, seconds, now, [now]))
        return 1, float(seconds)


@given(hits)
def test_windows_count_like_a_list_of_all_hits(given_hits: list[tuple[bytes, int, float]]) -> None:
    clock = Clock()
    windows, naive = MemoryWindows(clock), NaiveWindows()
    for name, seconds, passes in given_hits:
        clock.now += passes
        counted = windows.hit(name, seconds)
        assert (counted.count, counted.left_seconds) == naive.hit(name, seconds, clock.now)


@given(hits)
def test_no_table_outgrows_its_bound_and_who_is_not_forgotten_counts_right(
    given_hits: list[tuple[bytes, int, float]],
) -> None:
    clock = Clock()
    windows, naive = MemoryWindows(clock, max_windows=2), NaiveWindows()
    for name, seconds, passes in given_hits:
        clock.now += passes
        counted = windows.hit(name, seconds)
        assert len(windows) <= 2 * len(SECONDS)
        # Being forgotten only ever helps the caller.
        assert counted.count <= naive.hit(name, seconds, clock.now)[0]


async def test_windows_allow_what_the_library_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(memory, "time", SimpleNamespace(time=clock))
    limiter, windows = FixedWindowRateLimiter(MemoryStorage()), MemoryWindows(clock)
    item = RateLimitItemPerSecond(3, 7)
    for step in range(200):
        clock.now += (0.0, 0.5, 3.25, 7.0)[step * step % 11 % 4]
        name = NAMES[step * 7 % 3]
        is_within = windows.hit(name, 7).count <= 3
        assert is_within is await limiter.hit(item, name.decode()), f"step {step}"


def test_ended_windows_are_swept_while_others_begin() -> None:
    clock = Clock()
    windows = MemoryWindows(clock)
    for number in range(1_000):
        windows.hit(b"old %d" % number, 60)
    clock.now += 60
    for number in range(500):
        windows.hit(b"new %d" % number, 60)
    assert len(windows) == 500


def test_a_crowd_of_strangers_pushes_out_the_oldest_and_fills_no_memory() -> None:
    clock = Clock()
    windows = MemoryWindows(clock)
    for number in range(MAX_WINDOWS + 10_000):
        windows.hit(b"events|60|%d" % number, 60)
    assert len(windows) == MAX_WINDOWS
    assert windows.hit(b"events|60|%d" % (MAX_WINDOWS + 9_999), 60).count == 2
    assert windows.hit(b"events|60|0", 60).count == 1


def test_a_full_table_takes_some_twenty_megabytes() -> None:
    windows, count = MemoryWindows(), 5_000
    tracemalloc.start()
    try:
        for number in range(count):
            windows.hit(b"%0200d" % number, 60)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / count * MAX_WINDOWS < 25e6

"""A cache that parties share: parts, the order of eviction, and time."""

from ltzd.concurrency.shared_cache import SharedCache
from tests.support.clocks import ManualClock


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


def test_a_party_that_floods_the_cache_pushes_out_its_own_entries_alone() -> None:
    cache: SharedCache[int] = SharedCache(10, 60.0, ManualClock())
    for number in range(3):
        cache.put("quiet", key(number), number)
    for number in range(100):
        cache.put("loud", key(number), number)

    assert [cache.get("quiet", key(number)) for number in range(3)] == [0, 1, 2]
    assert cache.get("loud", key(99)) == 99
    assert cache.get("loud", key(92)) is None
    assert len(cache) == 10


def test_a_new_party_takes_its_place_from_the_largest() -> None:
    cache: SharedCache[int] = SharedCache(4, 60.0, ManualClock())
    cache.put("quiet", key(0), 0)
    for number in range(3):
        cache.put("loud", key(number), number)
    cache.put("new", key(0), 7)

    assert cache.get("new", key(0)) == 7
    assert cache.get("quiet", key(0)) == 0
    assert cache.get("loud", key(0)) is None
    assert len(cache) == 4


def test_an_entry_ends_with_its_time_and_leaves_no_part_behind() -> None:
    clock = ManualClock()
    cache: SharedCache[int] = SharedCache(4, 60.0, clock)
    cache.put("one", key(0), 1)
    clock.now += 59.0
    assert cache.get("one", key(0)) == 1
    clock.now += 1.0
    assert cache.get("one", key(0)) is None
    cache.put("one", key(1), 2)
    assert len(cache) == 1
    cache.remove("one", key(1))
    cache.remove("one", key(1))
    assert len(cache) == 0
    assert cache.get("one", key(1)) is None

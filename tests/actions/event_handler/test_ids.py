"""Event ids hold the second in which they were made, are otherwise random, and do not repeat."""

from itertools import islice
from uuid import RFC_4122

from ltzd.actions.event_handler.ids import event_ids
from ltzd.rules.event_handler.event_ids import RANDOM_BITS, seconds_of

NOW = 1_800_000_000


def test_ids_are_of_version_8_hold_the_clocks_second_and_differ() -> None:
    times = iter(NOW + number / 100 for number in range(1_000))
    ids = list(islice(event_ids(lambda: next(times)), 1_000))
    assert len(set(ids)) == 1_000
    assert {(uuid.version, uuid.variant) for uuid in ids} == {(8, RFC_4122)}
    assert [seconds_of(uuid) for uuid in ids] == [NOW + number // 100 for number in range(1_000)]


def test_every_free_bit_of_an_id_is_random() -> None:
    seen_one = seen_zero = 0
    for uuid in islice(event_ids(lambda: NOW), 500):
        seen_one |= uuid.int
        seen_zero |= ~uuid.int
    free = (1 << RANDOM_BITS) - 1
    assert seen_one & free == free
    assert seen_zero & free == free


def test_two_generators_yield_different_ids() -> None:
    assert not set(islice(event_ids(), 300)) & set(islice(event_ids(), 300))

"""Event ids are random UUIDs of version 4 and do not repeat."""

from itertools import islice
from uuid import RFC_4122

from ltzd.actions.event_handler.ids import event_ids


def test_ids_are_of_version_4_and_differ_across_draws() -> None:
    ids = list(islice(event_ids(), 1_000))
    assert len(set(ids)) == 1_000
    assert {(uuid.version, uuid.variant) for uuid in ids} == {(4, RFC_4122)}


def test_every_free_bit_of_an_id_is_random() -> None:
    seen_one = seen_zero = 0
    for uuid in islice(event_ids(), 500):
        seen_one |= uuid.int
        seen_zero |= ~uuid.int
    everything = (1 << 128) - 1
    fixed = (0xF << 76) | (0b11 << 62)
    assert seen_one & ~fixed & everything == everything & ~fixed
    assert seen_zero & ~fixed & everything == everything & ~fixed


def test_two_generators_yield_different_ids() -> None:
    assert not set(islice(event_ids(), 300)) & set(islice(event_ids(), 300))

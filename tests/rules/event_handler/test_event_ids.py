"""Ids of events sort by time and hold it; ids of before sort before all of them."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.event_handler.event_ids import RANDOM_BITS, event_id, first_id, seconds_of

SECONDS = st.integers(0, 2**32 - 1)
RANDOM = st.integers(0, 2**RANDOM_BITS - 1)


@given(SECONDS, RANDOM)
def test_an_id_is_a_uuid_of_version_8_and_holds_its_second(seconds: int, random: int) -> None:
    id_ = event_id(seconds, random)

    assert (id_.version, id_.variant) == (8, "specified in RFC 4122")
    assert seconds_of(id_) == seconds
    assert seconds_of(UUID(str(id_))) == seconds


@given(st.tuples(SECONDS, RANDOM), st.tuples(SECONDS, RANDOM))
def test_ids_sort_by_time(left: tuple[int, int], right: tuple[int, int]) -> None:
    assert (event_id(*left) < event_id(*right)) == (left < right)
    assert first_id(left[0]) <= event_id(*left)


@given(st.uuids(version=4))
def test_a_random_id_sorts_before_all_of_them(id_: UUID) -> None:
    if id_.int >> 96 != 0xFFFFFFFF:
        assert id_ < first_id(0)
    assert seconds_of(id_) is None


def test_an_id_of_another_form_has_no_time() -> None:
    assert seconds_of(UUID("fffffffe-6a0b-81c2-b400-000000000000")) is None
    assert seconds_of(UUID("ffffffff-6a0b-41c2-b400-000000000000")) is None


def test_a_time_beyond_the_last_second_counts_as_the_last_one() -> None:
    assert first_id(2**40) == first_id(2**32 - 1)
    assert str(first_id(0x6A0B1C2D)) == "ffffffff-6a0b-81c2-b400-000000000000"


def test_a_time_before_1970_counts_as_the_first_second() -> None:
    assert first_id(-1) == first_id(-(2**40)) == first_id(0)

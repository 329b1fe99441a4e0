"""Lanes take whole words of references; no reference is given out twice or lost within a term."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.operator.references import LaneReferences
from ltzd.rules.operator.wallet_history import REFERENCES_A_WORD

STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 100)), max_size=60)


def _following_word(counter: int) -> int:
    """The first word of the bitmap that lies wholly at or above the counter, as the store takes."""
    return -(-counter // REFERENCES_A_WORD)


@dataclass
class Fleet:
    """Three lanes that share a counter."""

    counter: int = 0
    lanes: list[LaneReferences] = field(default_factory=lambda: [LaneReferences()] * 3)
    given: list[int] = field(default_factory=list)

    def take(self, lane: int, count: int) -> list[int]:
        while self.lanes[lane].count < count:
            first = _following_word(self.counter) * REFERENCES_A_WORD
            self.lanes[lane] = self.lanes[lane].with_word(first)
            self.counter = first + REFERENCES_A_WORD
        seqs, self.lanes[lane] = self.lanes[lane].take(count)
        self.given += seqs
        return seqs


@given(STEPS, st.integers(0, 600))
def test_lanes_never_share_a_reference_and_leave_no_gap_of_their_own(
    steps: list[tuple[int, int]], first: int
) -> None:
    fleet = Fleet(first)
    for lane, count in steps:
        assert len(fleet.take(lane, count)) == count
        assert fleet.lanes[lane].count < 2 * REFERENCES_A_WORD
    assert len(fleet.given) == len(set(fleet.given))
    assert min(fleet.given, default=first) >= first

    unused = {
        word * REFERENCES_A_WORD + bit
        for lane in fleet.lanes
        for word in lane.words()
        for bit in range(REFERENCES_A_WORD)
        if lane.unused_in(word) >> bit & 1
    }
    assert unused.isdisjoint(fleet.given)
    start = _following_word(first) * REFERENCES_A_WORD
    assert unused.union(fleet.given) == set(range(start, max(start, fleet.counter)))


def test_a_batch_may_span_two_words() -> None:
    lane = LaneReferences(250, 256).with_word(1024)
    assert lane.words() == [0, 4]
    seqs, after = lane.take(100)
    assert seqs == [*range(250, 256), *range(1024, 1118)]
    assert after == LaneReferences(1118, 1280)


def test_the_last_reference_of_a_word_begins_the_following_word() -> None:
    assert LaneReferences(250, 256, 512).take(6)[1] == LaneReferences(512, 768)
    assert LaneReferences(250, 256).take(6)[1].count == 0


def test_a_used_reference_is_foreign_only_if_the_lane_still_holds_it() -> None:
    """A lane that holds two words: what it gave out of the first one is its own."""
    lane = LaneReferences(250, 256, 1024)
    assert [lane.unused_in(word) for word in lane.words()] == [0b111111 << 250, 2**256 - 1]
    assert lane.unused_in(1) == 0
    assert LaneReferences(256, 256).words() == []
    assert LaneReferences(512, 768).unused_in(2) == 2**256 - 1


def test_a_lane_gives_out_no_references_that_it_lacks() -> None:
    with pytest.raises(ValueError, match="has 6 references"):
        LaneReferences(250, 256).take(7)
    with pytest.raises(ValueError, match="two words"):
        LaneReferences(250, 256, 512).with_word(768)

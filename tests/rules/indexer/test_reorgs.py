"""A stale node is not a reorg, another hash at a height is one, a short head is one later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.indexer.reorgs import (
    SECOND_LOOK_SECONDS,
    CursorVerdict,
    HeadObservation,
    compare,
    fork_point,
)
from ltzd.values import Hash32

OURS = Hash32(b"\x01" * 32)
OTHER = Hash32(b"\x02" * 32)
CURSOR = 100
NOW = 1_000.0


@pytest.mark.parametrize(
    ("head", "hash_at_cursor", "first_short", "verdict"),
    [
        (CURSOR, OURS, None, CursorVerdict.CURRENT),
        (CURSOR + 1, OURS, None, CursorVerdict.BEHIND),
        (CURSOR + 500, OURS, None, CursorVerdict.BEHIND),
        (CURSOR, OTHER, None, CursorVerdict.REORGED),
        (CURSOR + 1, OTHER, None, CursorVerdict.REORGED),
        (CURSOR - 1, None, None, CursorVerdict.STALE),
        (0, None, None, CursorVerdict.STALE),
        (CURSOR - 1, None, NOW, CursorVerdict.STALE),
        (CURSOR - 1, None, NOW - SECOND_LOOK_SECONDS / 2, CursorVerdict.STALE),
        (CURSOR - 1, None, NOW - SECOND_LOOK_SECONDS, CursorVerdict.REORGED),
        # A node above the cursor that cannot show the block at the cursor: not proven yet either.
        (CURSOR + 3, None, None, CursorVerdict.STALE),
        # A head that is no longer short is judged by its block at the cursor.
        (CURSOR, OURS, NOW - 60, CursorVerdict.CURRENT),
        (CURSOR + 1, OURS, NOW - 60, CursorVerdict.BEHIND),
        (CURSOR, OTHER, NOW - 60, CursorVerdict.REORGED),
    ],
)
def test_a_head_is_judged_by_its_block_at_the_cursor(
    head: int, hash_at_cursor: Hash32 | None, first_short: float | None, verdict: CursorVerdict
) -> None:
    assert compare(CURSOR, OURS, HeadObservation(head, hash_at_cursor, NOW), first_short) is verdict


@given(st.integers(0, 200), st.sampled_from([OURS, OTHER, None]), st.none() | st.floats(0, NOW))
def test_a_block_that_is_still_there_is_never_a_reorg(
    head: int, hash_at_cursor: Hash32 | None, first_short: float | None
) -> None:
    verdict = compare(CURSOR, OURS, HeadObservation(head, hash_at_cursor, NOW), first_short)

    assert (verdict in {CursorVerdict.CURRENT, CursorVerdict.BEHIND}) == (hash_at_cursor == OURS)


hashes = st.sampled_from([Hash32(bytes((byte,)) * 32) for byte in range(3)])
branches = st.dictionaries(st.integers(0, 12), hashes)


@given(branches, branches, st.randoms())
def test_the_fork_point_is_the_highest_block_of_both(
    ours: dict[int, Hash32], theirs: dict[int, Hash32], shuffler: object
) -> None:
    rows = list(ours.items())
    shuffler.shuffle(rows)  # type: ignore[attr-defined]

    common = [row for row in ours.items() if theirs.get(row[0]) == row[1]]

    assert fork_point(rows, theirs) == max(common, default=None)


def test_without_a_common_block_there_is_no_fork_point() -> None:
    assert fork_point([(1, OURS)], {1: OTHER, 2: OURS}) is None

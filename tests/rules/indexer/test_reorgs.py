"""A node is compared with the cursor by its block at the cursor's height."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.indexer.reorgs import (
    CursorVerdict,
    NoForkReason,
    compare,
    fork_point,
    no_fork_reason,
)
from ltzd.values import Hash32

OURS = Hash32(b"\x01" * 32)
OTHER = Hash32(b"\x02" * 32)
CURSOR = 100


@pytest.mark.parametrize(
    ("head", "hash_at_cursor", "verdict"),
    [
        (CURSOR, OURS, CursorVerdict.CURRENT),
        (CURSOR + 1, OURS, CursorVerdict.BEHIND),
        (CURSOR + 500, OURS, CursorVerdict.BEHIND),
        (CURSOR, OTHER, CursorVerdict.CONTRADICTED),
        (CURSOR + 1, OTHER, CursorVerdict.CONTRADICTED),
        (CURSOR - 1, None, CursorVerdict.SHORT),
        (0, None, CursorVerdict.SHORT),
        # A node above the cursor that cannot show the block at the cursor.
        (CURSOR + 3, None, CursorVerdict.SHORT),
    ],
)
def test_a_head_is_judged_by_its_block_at_the_cursor(
    head: int, hash_at_cursor: Hash32 | None, verdict: CursorVerdict
) -> None:
    assert compare(CURSOR, OURS, head, hash_at_cursor) is verdict


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


@pytest.mark.parametrize(
    ("genesis_of_node", "shows_others", "reason"),
    [
        (OURS, True, NoForkReason.DEEP_REORG),
        (OURS, False, NoForkReason.BEHIND),
        (OTHER, True, NoForkReason.OTHER_CHAIN),
        (OTHER, False, NoForkReason.OTHER_CHAIN),
        # Nodes may drop old blocks.
        (None, True, NoForkReason.DEEP_REORG),
        (None, False, NoForkReason.BEHIND),
    ],
)
def test_a_node_without_a_common_block_was_wiped_is_another_chain_or_shows_a_deep_reorg(
    genesis_of_node: Hash32 | None, reason: NoForkReason, *, shows_others: bool
) -> None:
    assert no_fork_reason(OURS, genesis_of_node, shows_others=shows_others) is reason

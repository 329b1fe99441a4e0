"""Verdicts about transactions need two nodes that agree, or a block that contradicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.operator.evidence import (
    BlockTestimony,
    MintRight,
    NonceUse,
    ReceiptOpinion,
    ReceiptWait,
    UseOpinion,
    block_testimony,
    is_block_lost,
    is_nonce_taken,
    is_receipt_believed,
    is_revocation_final,
    is_revocation_seen,
)
from ltzd.values import Hash32

BEHIND, HOLDS, GONE = BlockTestimony.BEHIND, BlockTestimony.HOLDS, BlockTestimony.GONE
OURS, OTHER = Hash32(b"\x01" * 32), Hash32(b"\x02" * 32)
PATIENCE = 2.0


@pytest.mark.parametrize(
    ("canonical", "has_receipt", "expected"),
    [
        (None, False, BEHIND),
        (OURS, False, HOLDS),
        (OURS, True, HOLDS),
        (OTHER, True, HOLDS),
        (OTHER, False, GONE),
    ],
)
def test_a_node_without_the_block_is_no_witness(
    canonical: Hash32 | None, has_receipt: bool, expected: BlockTestimony
) -> None:
    assert block_testimony(OURS, canonical, has_receipt=has_receipt) is expected


@pytest.mark.parametrize(
    ("own", "others", "is_alone", "expected"),
    [
        (GONE, [], True, True),
        (GONE, [], False, False),
        (GONE, [BEHIND], False, False),
        (GONE, [GONE], False, True),
        (GONE, [BEHIND, GONE], False, True),
        (GONE, [HOLDS], False, False),
        (GONE, [HOLDS], True, False),  # it fell away after its answer
        (GONE, [HOLDS, GONE], False, True),
        (GONE, [HOLDS, BEHIND], False, False),
        (GONE, [HOLDS, HOLDS], False, False),
        (HOLDS, [GONE, GONE], False, False),
        (BEHIND, [GONE], False, False),
        (BEHIND, [], True, False),
        (HOLDS, [], True, False),
    ],
)
def test_a_block_is_lost_once_a_second_node_agrees(
    own: BlockTestimony, others: list[BlockTestimony], is_alone: bool, expected: bool
) -> None:
    assert is_block_lost(own, others, is_alone=is_alone) is expected


@given(st.sampled_from(BlockTestimony), st.lists(st.sampled_from(BlockTestimony)), st.booleans())
def test_no_block_is_lost_that_half_of_the_nodes_hold_or_that_the_node_has_not_reached(
    own: BlockTestimony, others: list[BlockTestimony], is_alone: bool
) -> None:
    if is_block_lost(own, others, is_alone=is_alone):
        assert own is GONE
        assert others.count(HOLDS) <= others.count(GONE)


AGREES, LAGS, DIFFERS = ReceiptOpinion.AGREES, ReceiptOpinion.BEHIND, ReceiptOpinion.DIFFERS
REFUTES = ReceiptOpinion.REFUTES


@pytest.mark.parametrize(
    ("opinions", "waited", "is_final", "expected"),
    [
        ([], 0, False, False),
        ([], PATIENCE, False, True),
        ([AGREES], 0, False, True),
        ([DIFFERS, AGREES], 0, False, True),
        ([LAGS], 0, False, False),
        ([LAGS], PATIENCE, False, True),
        ([DIFFERS], 3600, False, False),
        ([LAGS, DIFFERS], 3600, False, False),
        ([DIFFERS], 0, True, True),
        ([REFUTES], 3600, False, False),
        ([REFUTES], 3600, True, False),
        ([LAGS, REFUTES], 3600, True, False),
        ([DIFFERS, REFUTES], 3600, True, False),
        ([REFUTES, AGREES], 0, False, True),
        ([LAGS], 0, True, True),
    ],
)
def test_a_receipt_is_told_once_another_node_has_it(
    opinions: list[ReceiptOpinion], waited: float, is_final: bool, expected: bool
) -> None:
    wait = ReceiptWait(waited, PATIENCE)
    assert is_receipt_believed(opinions, wait, is_alone=False, is_final=is_final) is expected


def test_without_another_node_a_receipt_is_told_at_once() -> None:
    assert is_receipt_believed([], ReceiptWait(0, PATIENCE), is_alone=True, is_final=False)


@given(st.lists(st.sampled_from(ReceiptOpinion), min_size=1), st.floats(0, 1e6), st.booleans())
def test_a_receipt_that_a_node_denies_needs_another_node_or_finality(
    opinions: list[ReceiptOpinion], waited: float, is_alone: bool
) -> None:
    """The node that denies may have fallen away since, so that the other is alone."""
    wait = ReceiptWait(waited, PATIENCE)
    believed = is_receipt_believed(opinions, wait, is_alone=is_alone, is_final=False)
    if believed and not {DIFFERS, REFUTES}.isdisjoint(opinions):
        assert AGREES in opinions


USE = NonceUse(OTHER, 100, OURS)
SAME, OPEN, DENIES = UseOpinion.AGREES, UseOpinion.OPEN, UseOpinion.DENIES


@pytest.mark.parametrize(
    ("final_number", "opinions", "is_alone", "expected"),
    [
        (99, [SAME], False, False),
        (100, [SAME], False, True),
        (100, [OPEN, SAME], False, True),
        (100, [OPEN], False, False),
        (100, [], False, False),
        (100, [], True, True),
        (100, [DENIES], False, False),
        (100, [DENIES], True, False),
        (100, [DENIES, SAME], False, True),
        (100, [DENIES, OPEN], False, False),
        (100, [DENIES, DENIES], False, False),
        (99, [], True, False),
    ],
)
def test_a_nonce_is_taken_by_a_final_transaction_that_a_second_node_shows_too(
    final_number: int, opinions: list[UseOpinion], is_alone: bool, expected: bool
) -> None:
    assert is_nonce_taken(USE, final_number, opinions, is_alone=is_alone) is expected


def test_a_forged_transaction_takes_no_nonce() -> None:
    forged = NonceUse(OTHER, 100, OURS, is_forged=True)
    assert not is_nonce_taken(forged, 1_000, [SAME, SAME], is_alone=False)
    assert not is_nonce_taken(forged, 1_000, [], is_alone=True)


MAY, NO_ROLE, NO_LIMIT = MintRight(True, 5), MintRight(False, 5), MintRight(True, 0)


@pytest.mark.parametrize(
    ("own", "others", "is_alone", "expected"),
    [
        (MAY, [], True, False),
        (NO_ROLE, [], True, True),
        (NO_LIMIT, [], True, True),
        (NO_ROLE, [], False, False),
        (NO_ROLE, [NO_LIMIT], False, True),
        (NO_ROLE, [MAY], False, False),
        (MAY, [NO_ROLE], False, False),
        (NO_ROLE, [NO_ROLE, MAY], False, True),
        (MAY, [NO_ROLE, NO_ROLE], False, True),
        (NO_ROLE, [MAY, MAY], False, False),
        (NO_ROLE, [NO_ROLE, MAY, MAY], False, False),
        (NO_ROLE, [NO_ROLE, MAY, MAY, MAY], False, False),
    ],
)
def test_a_lost_right_to_mint_needs_a_second_node(
    own: MintRight, others: list[MintRight], is_alone: bool, expected: bool
) -> None:
    assert is_revocation_seen(own, others, is_alone=is_alone) is expected


@pytest.mark.parametrize(
    ("canonical", "final_number", "expected"),
    [(OURS, 7, True), (OURS, 6, False), (OTHER, 7, False), (None, 7, False)],
)
def test_a_lost_right_to_mint_counts_once_its_block_is_final(
    canonical: Hash32 | None, final_number: int, expected: bool
) -> None:
    assert is_revocation_final(OURS, 7, canonical, final_number) is expected

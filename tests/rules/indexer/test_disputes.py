"""Nodes outvote a liar, a stale node undoes nothing, and a tie decides nothing."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.indexer.disputes import (
    Decision,
    Dispute,
    DisputePolicy,
    DisputeVerdict,
    Opinion,
    count_votes,
)
from ltzd.values import Hash32

OURS, OTHER, THIRD = (Hash32(bytes((byte,)) * 32) for byte in (1, 2, 3))
HEIGHT = 100
POLICY = DisputePolicy(second_check_seconds=2.0, stall_seconds=6.0)
HOLDS, GONE = DisputeVerdict.HOLDS, DisputeVerdict.GONE
WAITING, TIED = DisputeVerdict.WAITING, DisputeVerdict.TIED

SYNCING = Opinion(HEIGHT - 50, None, is_syncing=True)

Answers = Sequence[Opinion | None]


def shows(block: Hash32 | None, head: int = HEIGHT) -> Opinion:
    return Opinion(head if block else HEIGHT - 1, block)


def check(dispute: Dispute, answers: Answers, at: float) -> tuple[Dispute, Decision]:
    return count_votes(dispute, answers, at, POLICY, is_alone=len(answers) == 1)


def after_checks(*checks: tuple[float, Answers]) -> Decision:
    """The decision after checks (seconds since the first one, answers)."""
    dispute = Dispute(HEIGHT, OURS, since=checks[0][0])
    decision = None
    for at, answers in checks:
        dispute, decision = check(dispute, answers, at)
    assert decision is not None
    return decision


@pytest.mark.parametrize(
    ("blocks", "verdict"),
    [
        ([OTHER], GONE),
        ([OTHER, OTHER], GONE),
        ([OTHER, OTHER, OURS], GONE),
        ([OTHER, OURS], TIED),
        ([OTHER, THIRD], TIED),
        ([OTHER, OURS, OURS], HOLDS),
        ([None, OURS], HOLDS),
        ([None, OTHER], WAITING),
        ([None, None], WAITING),
        ([None], WAITING),
        ([OURS], HOLDS),
    ],
)
def test_the_first_check_counts_votes(blocks: list[Hash32 | None], verdict: DisputeVerdict) -> None:
    assert after_checks((0, [shows(block) for block in blocks])).verdict is verdict


@pytest.mark.parametrize(
    ("answers", "seconds", "verdict"),
    [
        ([shows(None)], 1.9, WAITING),
        ([shows(None)], 2.0, GONE),
        ([shows(None), shows(None)], 2.0, GONE),
        ([shows(OTHER), shows(None)], 5.9, WAITING),
        ([shows(OTHER), shows(None)], 6.0, GONE),
        ([shows(OTHER), None], 5.9, WAITING),
        ([shows(OTHER), None], 6.0, GONE),
        ([shows(None), None], 5.9, WAITING),
        ([shows(None), None], 6.0, GONE),
        ([None, None], 60.0, WAITING),
        ([shows(None), shows(OURS)], 60.0, HOLDS),
        ([SYNCING], 60.0, WAITING),
        ([SYNCING, SYNCING], 60.0, WAITING),
        ([SYNCING, shows(None)], 5.9, WAITING),
        ([SYNCING, shows(OTHER)], 6.0, GONE),
    ],
)
def test_time_confirms_what_no_node_denies(
    answers: Answers, seconds: float, verdict: DisputeVerdict
) -> None:
    assert after_checks((0, answers), (seconds, answers)).verdict is verdict


def test_of_two_branches_the_one_that_grows_alone_wins() -> None:
    def answers(theirs: int, ours: int) -> Answers:
        return [shows(OTHER, theirs), shows(OURS, ours)]

    assert after_checks((0, answers(100, 100)), (7, answers(103, 100))).winner == OTHER
    assert after_checks((0, answers(100, 100)), (7, answers(100, 103))).winner == OURS
    assert after_checks((0, answers(100, 100)), (3, answers(103, 100))).verdict is TIED
    assert after_checks((0, answers(100, 100)), (7, answers(101, 100))).verdict is TIED
    assert after_checks((0, answers(100, 100)), (60, answers(100, 100))).verdict is TIED


@pytest.mark.parametrize("block", [OTHER, None])
def test_a_node_whose_witness_is_away_for_a_moment_is_not_believed_at_once(
    block: Hash32 | None,
) -> None:
    dispute, decision = Dispute(HEIGHT, OURS, since=0.0), None
    for at in (0.0, 3.0, 6.0):
        answers = [shows(block)]
        dispute, decision = count_votes(dispute, answers, at, POLICY, is_alone=False)
        assert decision.verdict is (WAITING if at < POLICY.stall_seconds else GONE)


@given(st.lists(st.tuples(st.floats(0.1, 5.0), st.integers(1, 9), st.integers(1, 9)), min_size=1))
def test_while_two_branches_grow_nothing_is_decided(steps: list[tuple[float, int, int]]) -> None:
    dispute, at, heads = Dispute(HEIGHT, OURS, since=0.0), 0.0, (HEIGHT, HEIGHT)
    for seconds, ours, theirs in [(0.0, 0, 0), *steps]:
        at, heads = at + seconds, (heads[0] + ours, heads[1] + theirs)
        answers = [shows(OURS, heads[0]), shows(OTHER, heads[1])]
        dispute, decision = check(dispute, answers, at)
        assert decision.verdict is TIED


blocks = st.sampled_from([OURS, OTHER, THIRD, None])
opinions = st.none() | st.builds(
    lambda block, lead: shows(block, HEIGHT + lead), blocks, st.integers(0, 9)
)
histories = st.lists(
    st.tuples(st.floats(0, 30), st.lists(opinions, min_size=1, max_size=5)), min_size=1, max_size=8
)


@given(histories, st.integers(0, 9))
def test_one_liar_never_undoes_what_two_honest_nodes_show(
    history: list[tuple[float, list[Opinion | None]]], growth: int
) -> None:
    """The liar says anything at any time; the two others show the indexed block."""
    dispute, at = Dispute(HEIGHT, OURS, since=0.0), 0.0
    for seconds, answers in history:
        at += seconds
        honest = [shows(OURS, HEIGHT + growth)] * 2
        dispute, decision = check(dispute, [answers[0], *honest], at)
        assert decision.verdict is HOLDS


@given(histories)
def test_a_block_is_gone_only_by_votes_or_by_time(
    history: list[tuple[float, list[Opinion | None]]],
) -> None:
    dispute, at = Dispute(HEIGHT, OURS, since=0.0), 0.0
    for seconds, answers in history:
        at += seconds
        dispute, decision = check(dispute, answers, at)
        shown = [answer.block_hash for answer in answers if answer and answer.block_hash]
        ours, theirs = shown.count(OURS), shown.count(decision.winner or OURS)
        if decision.verdict is HOLDS:
            assert ours
            assert decision.winner == OURS
        if decision.verdict is not GONE:
            continue
        if decision.winner is None:
            assert not shown
            assert at >= POLICY.second_check_seconds
        else:
            assert theirs >= max(ours, 1)
            assert theirs > 1 or len(answers) == 1 or at >= POLICY.stall_seconds
            assert theirs > ours or at >= POLICY.stall_seconds


@given(histories)
def test_a_stale_node_never_undoes_a_block_that_another_node_shows(
    history: list[tuple[float, list[Opinion | None]]],
) -> None:
    dispute, at = Dispute(HEIGHT, OURS, since=0.0), 0.0
    for seconds, answers in history:
        at += seconds
        stale = [shows(None) if answer else None for answer in answers]
        dispute, decision = check(dispute, [*stale, shows(OURS)], at)
        assert decision.verdict is HOLDS

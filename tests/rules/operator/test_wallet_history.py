"""The free nonces of a wallet by blocks and pools, and its free references by LTZ's bitmap."""

from collections.abc import Mapping

import pytest

from ltzd.rules.operator.wallet_history import (
    WalletHistory,
    agrees_on_used,
    ahead_of,
    are_outvoted,
    behind_gap,
    contradict_each_other,
    first_free_word,
    first_unknown_reference,
    next_free,
    prevailing_used,
)


def a_node(used: int, pending: int | None = None, *pooled: int) -> WalletHistory:
    return WalletHistory("a", 100, used, used if pending is None else pending, pooled)


@pytest.mark.parametrize(
    ("histories", "stored", "free"),
    [
        ([a_node(5)], (), 5),
        ([a_node(5, 7)], (), 7),
        ([a_node(5), a_node(6), a_node(4, 4)], (), 6),
        ([a_node(6, 5)], (), 6),
        ([a_node(5, 5, 5, 6, 8)], (), 7),
        ([a_node(5), a_node(5, 5, 5), a_node(5, 5, 6)], (), 7),
        ([a_node(5)], (5, 6, 8), 7),
        ([a_node(5, 6, 7)], (6,), 8),
    ],
)
def test_a_nonce_is_free_if_no_block_no_pool_and_no_stored_transaction_has_it(
    histories: list[WalletHistory], stored: tuple[int, ...], free: int
) -> None:
    assert next_free(histories, stored) == free


def test_nonces_that_wait_for_another_one_are_behind_a_gap() -> None:
    histories = [a_node(5, 5, 9, 7), a_node(5, 5, 7, 6)]
    assert next_free(histories) == 5
    assert behind_gap(histories, 5) == [6, 7, 9]
    assert behind_gap(histories, 7) == [9]


@pytest.mark.parametrize(
    ("history", "is_ahead"),
    [
        (a_node(5), False),
        (a_node(6), True),
        (a_node(4, 5), False),
        (a_node(4, 6), True),
        (a_node(4, 4, 4), False),
        (a_node(4, 4, 4, 5), True),
        (a_node(4, 4, 9), True),
    ],
)
def test_a_node_is_ahead_if_it_shows_the_databases_next_nonce_as_taken(
    history: WalletHistory, is_ahead: bool
) -> None:
    assert ahead_of([a_node(5), history], 5) == [history] * is_ahead


def test_nodes_agree_if_all_have_seen_the_same_nonces_used() -> None:
    assert agrees_on_used([a_node(5, 9), a_node(5)])
    assert not agrees_on_used([a_node(5), a_node(6)])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((100, 5), (100, 5), False),
        ((99, 4), (100, 5), False),
        ((100, 5), (99, 4), False),
        ((100, 4), (100, 5), True),
        ((99, 5), (100, 4), True),
        ((100, 4), (99, 5), True),
    ],
)
def test_a_node_that_is_behind_contradicts_nobody_by_fewer_nonces(
    first: tuple[int, int], second: tuple[int, int], expected: bool
) -> None:
    histories = [WalletHistory("a", head, used, used) for head, used in (first, second)]
    assert contradict_each_other(histories) is expected


@pytest.mark.parametrize(
    ("used", "prevailing"), [([5], 5), ([5, 4], 4), ([5, 4, 6], 5), ([0, 7, 7], 7), ([7, 0, 0], 0)]
)
def test_the_lower_of_two_nonces_counts_and_the_middle_one_of_three(
    used: list[int], prevailing: int
) -> None:
    assert prevailing_used(map(a_node, used)) == prevailing


@pytest.mark.parametrize(
    ("used", "is_outvoted"),
    [([6], False), ([6, 5], False), ([6, 5, 5], True), ([6, 5, 6], False), ([5], True)],
)
def test_only_fewer_nodes_than_the_others_are_outvoted(used: list[int], is_outvoted: bool) -> None:
    histories = [a_node(nonce) for nonce in used]
    assert are_outvoted(ahead_of(histories, 5), histories) is is_outvoted


@pytest.mark.parametrize(
    ("words", "next_seq", "unknown"),
    [
        ({}, 0, None),
        ({0: 0, 1: 0}, 0, None),
        ({0: 0b1}, 0, 0),
        ({0: 0b1}, 1, None),
        ({0: 0b1011}, 1, 1),
        ({0: 0b1011}, 2, 3),
        ({1: 1 << 255, 0: 2**256 - 1}, 256, 511),
        ({2: 1, 1: 1 << 7}, 0, 263),
        ({0: 1 << 255}, 255, 255),
        ({3: 1}, 300, 768),
    ],
)
def test_the_lowest_used_reference_that_was_not_given_out_is_found(
    words: Mapping[int, int], next_seq: int, unknown: int | None
) -> None:
    assert first_unknown_reference(words, next_seq) == unknown


def test_a_word_is_free_above_every_used_one() -> None:
    assert first_free_word({}) == first_free_word({0: 0, 5: 0}) == 0
    assert first_free_word({0: 1, 3: 1, 5: 0}) == 1024

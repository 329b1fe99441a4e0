"""What `ltzd doctor` says about the facts that it reads."""

from collections.abc import Iterable

import pytest

from ltzd.rules.checks import advice
from ltzd.rules.checks.advice import WalletMintLimit
from ltzd.rules.checks.clocks import BlockSighting, is_regular, judge_newest, judge_second_reading
from ltzd.rules.checks.findings import Finding, Level

LIMIT = WalletMintLimit("0xabc", 1000, 43_200)


def levels(findings: Iterable[Finding]) -> list[str]:
    return [each.level.value for each in findings]


def test_budgets_above_the_mint_limits_are_warned_of() -> None:
    assert levels(advice.on_mint_limits([LIMIT], {"shop": 2000})) == ["ok"]
    assert levels(advice.on_mint_limits([LIMIT], {"shop": 2001})) == ["warning"]
    assert levels(advice.on_mint_limits([LIMIT], {"shop": 0})) == ["warning"]
    assert levels(advice.on_mint_limits([], {"shop": 5})) == []


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        ({"archives": True, "seconds_since_archived": 60.0}, Level.OK),
        ({"archives": True, "seconds_since_archived": 7200.0}, Level.WARNING),
        ({"archives": True, "seconds_since_archived": None}, Level.WARNING),
        ({"archives": True, "seconds_since_archived": 5.0, "has_failed": True}, Level.WARNING),
        ({"archives": False, "seconds_since_archived": None, "standbys": 1}, Level.WARNING),
    ],
)
def test_backups_that_do_not_arrive_are_warned_of(facts: dict[str, object], level: Level) -> None:
    given = {"has_failed": False, "standbys": 0} | facts

    assert advice.on_backups(**given).level is level  # type: ignore[arg-type]


def test_a_full_disk_an_old_certificate_and_mixed_versions_are_warned_of() -> None:
    assert advice.on_disk("/", 5, 100).level is Level.WARNING
    assert advice.on_disk("/", 50, 100).level is Level.OK
    assert advice.on_certificate("public", 86_400 * 3).level is Level.WARNING
    assert advice.on_certificate("public", 86_400 * 60).level is Level.OK
    assert advice.on_versions("2", {"a:1": "2", "b:2": "1"}).level is Level.WARNING
    assert advice.on_postgresql(130_000, "13").level is Level.WARNING


def test_a_certificate_that_has_expired_is_named_so() -> None:
    sentence = advice.on_certificate("public", -86_400 * 3.0).sentence
    assert sentence == (
        "The certificate of the public server has expired: renew it, and send ltzd SIGHUP."
    )


def test_a_block_from_the_future_proves_a_slow_clock() -> None:
    assert judge_newest(BlockSighting(5, 1000, 969.0), "n").level is Level.FAULT  # type: ignore[union-attr]
    assert judge_newest(BlockSighting(5, 1000, 1030.0), "n").level is Level.OK  # type: ignore[union-attr]
    assert judge_newest(BlockSighting(5, 1000, 1031.0), "n") is None


@pytest.mark.parametrize(
    ("second", "level"),
    [
        (BlockSighting(10, 1000, 1052.0), Level.WARNING),  # no new block: the chain may stand still
        (BlockSighting(90, 1005, 1052.0), Level.WARNING),  # many blocks: the node catches up
        (BlockSighting(11, 1012, 1052.0), Level.FAULT),  # a fresh block is 40 s old
        (BlockSighting(11, 1040, 1052.0), Level.OK),
    ],
)
def test_an_old_block_is_judged_by_the_next_one(second: BlockSighting, level: Level) -> None:
    first = BlockSighting(10, 1000, 1040.0)

    assert judge_second_reading(first, second, 12.0, "n").level is level


def test_blocks_are_regular_if_no_gap_is_long() -> None:
    assert is_regular([0, 12, 24, 36, 48])
    assert not is_regular([0, 12, 24, 36, 500])
    assert not is_regular([0, 12])

"""Warnings of a brand file that leaves rewards open."""

from pathlib import Path
from typing import Any

import pytest

from ltzd.rules.brands.configuration import FIRST_CATALOGUE, Brand, parse_brand_file
from ltzd.rules.brands.warnings import warnings

EXAMPLE = Path(__file__).parents[3] / "config" / "brand.example.toml"
CAREFUL = {"signed_bypass": True, "daily_mint_budget": 1_000}
REPEATABLE = {
    "type": "custom_wave",
    "reward": 5,
    "cooldown_hours": 0,
    "max_claims_per_user": -1,
}
PURCHASE = {"type": "purchase", "reward_per_dollar": 2}


def a_brand(**changes: Any) -> Brand:
    required: dict[str, Any] = {
        "id": "0x00000000000000000000000000000000000000aa",
        "name": "Shop",
        "domains": ["shop.example"],
    }
    return Brand.model_validate(required | changes)


def test_the_example_file_has_no_warnings() -> None:
    assert warnings(parse_brand_file(EXAMPLE.read_text(), "example")) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (CAREFUL, []),
        ({"automation": False}, []),
        (CAREFUL | {"signed_bypass": False}, ["voice_claim", "`signed_bypass = true`"]),
        (
            CAREFUL | {"signed_bypass": False, "bypass_sources": []},
            ["metadata.skip_cooldown needs no signature", "`signed_bypass = true`"],
        ),
        (
            CAREFUL | {"events": [PURCHASE]},
            ["`purchase`", "Set `max_reward_per_event` in", "or `signed = true` for purchase"],
        ),
        (CAREFUL | {"events": [PURCHASE], "max_reward_per_event": 5}, []),
        (CAREFUL | {"events": [PURCHASE | {"signed": True}]}, []),
        (
            CAREFUL | {"events": [REPEATABLE | {"signed": True}], "duplicate_window_seconds": 0},
            [],
        ),
        (
            CAREFUL
            | {"events": [REPEATABLE | {"signed": True, "detection_method": "url_pattern"}]},
            ["No page can send custom_wave", "Remove `signed`"],
        ),
        (CAREFUL | {"events": [REPEATABLE | {"detection_method": "url_pattern"}]}, []),
        (CAREFUL | {"duplicate_window_seconds": 59}, []),
        (CAREFUL | {"events": [REPEATABLE], "duplicate_window_seconds": 60}, []),
        (
            CAREFUL | {"events": [REPEATABLE], "duplicate_window_seconds": 59},
            ["rewarded twice (custom_wave)", "Set `duplicate_window_seconds = 60`"],
        ),
        (
            CAREFUL
            | {"events": [REPEATABLE | {"cooldown_hours": 1}], "duplicate_window_seconds": 0},
            [],
        ),
        (CAREFUL | {"daily_mint_budget": 0}, ["form_submit", "`daily_mint_budget`"]),
    ],
)
def test_each_warning_names_the_line_that_removes_it(
    changes: dict[str, Any], words: list[str]
) -> None:
    sentences = warnings(a_brand(**changes))
    assert len(sentences) == bool(words)
    for word in words:
        assert word in sentences[0]


def test_types_with_a_maximum_of_all_users_need_no_budget() -> None:
    types = FIRST_CATALOGUE.keys() - {"form_submit"}
    bounded = [{"type": kind, "max_total_claims": 9} for kind in types]
    closed = {"type": "form_submit", "enabled": False}
    free = {"type": "custom_wave", "reward": 0}
    assert warnings(a_brand(signed_bypass=True, events=[*bounded, closed, free])) == []


def test_a_brand_of_signed_types_alone_leaves_nothing_open() -> None:
    signed = [{"type": kind, "signed": True} for kind in FIRST_CATALOGUE]
    purchase = PURCHASE | {"signed": True}
    assert warnings(a_brand(events=[*signed, purchase])) == []
    unsigned = {"type": "custom_wave", "reward": 0}
    (sentence,) = warnings(a_brand(events=[*signed, purchase, unsigned]))
    assert "`signed_bypass = true`" in sentence

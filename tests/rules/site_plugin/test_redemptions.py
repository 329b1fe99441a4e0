"""Refusals for people, and codes that can be read aloud."""

import hashlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.errors import (
    ClaimLimitReached,
    RateLimited,
    RedemptionRefused,
    Refused,
    TransactionFailed,
    ValidationFailed,
)
from ltzd.rules.relayer.gas_budgets import total_exhausted
from ltzd.rules.site_plugin import redemptions as redeeming
from ltzd.rules.site_plugin.redemptions import (
    ALPHABET,
    CODE_ENTROPY_BYTES,
    CODE_LENGTH,
    Offer,
    RedemptionFacts,
    check,
    check_cost,
    check_price,
    code_of,
    is_available,
    is_gas_too_dear,
    refusal_sentence,
    revert_sentence,
)
from ltzd.values import LTZ, Address

BRAND, OTHER = Address(b"\xb0" * 20), Address(b"\xb1" * 20)
OFFER = Offer(BRAND, 5 * LTZ, is_active=True, left=3, max_per_user=2)
STANDING = RedemptionFacts(OFFER, balance=5 * LTZ, permit_nonce=7, claims=1)


def refusal_of(facts: RedemptionFacts) -> str:
    with pytest.raises(RedemptionRefused) as refused:
        check(facts, BRAND)
    return refused.value.message


# --- codes ------------------------------------------------------------------------------------


@given(st.binary(min_size=CODE_ENTROPY_BYTES, max_size=32))
def test_a_code_is_three_groups_of_four_unambiguous_characters(entropy: bytes) -> None:
    groups = code_of(entropy).split("-")
    assert [len(group) for group in groups] == [4, 4, 4]
    assert set("".join(groups)) <= set(ALPHABET)


def test_a_code_holds_about_58_bits_and_no_letter_that_looks_like_another() -> None:
    assert CODE_LENGTH * math.log2(len(ALPHABET)) > 57.6
    assert len(set(ALPHABET)) == len(ALPHABET)
    assert not set(ALPHABET) & set("0O1ILSVZ")


def test_every_place_of_a_code_depends_on_the_randomness() -> None:
    codes = [code_of(hashlib.sha256(b"%d" % n).digest()) for n in range(1_500)]
    assert len(set(codes)) == len(codes)
    for place in (*range(4), *range(5, 9), *range(10, 14)):
        assert {code[place] for code in codes} == set(ALPHABET), place


def test_too_little_randomness_makes_no_code() -> None:
    with pytest.raises(ValueError, match="random bytes"):
        code_of(b"\x01" * (CODE_ENTROPY_BYTES - 1))


# --- checks -------------------------------------------------------------------------------------


def test_an_available_and_affordable_offer_can_be_redeemed() -> None:
    check(STANDING, BRAND)
    check_price(OFFER, 5 * LTZ)
    assert is_available(OFFER)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"is_active": False}, "no longer offered"),
        ({"brand": OTHER}, "no longer offered"),
        ({"left": 0}, "sold out"),
        ({"needs_signature": True}, "your own wallet"),
        ({"max_per_user": 1}, "as often as it allows"),
    ],
)
def test_an_unavailable_offer_is_refused(change: dict[str, object], words: str) -> None:
    offer = replace(OFFER, **change)
    assert words in refusal_of(replace(STANDING, offer=offer))
    assert is_available(offer) == ("brand" in change or "max_per_user" in change)


def test_an_offer_without_limits_has_none() -> None:
    endless = replace(OFFER, left=None, max_per_user=None)
    check(replace(STANDING, offer=endless, claims=1_000), BRAND)
    assert is_available(endless)


def test_an_insufficient_balance_is_refused_with_both_amounts() -> None:
    sentence = refusal_of(replace(STANDING, balance=5 * LTZ - 1))
    assert sentence == "This perk costs 5 LTZ, but your wallet holds 4.999999999999999999 LTZ."


def test_another_price_than_agreed_is_refused() -> None:
    for price in (OFFER.price - 1, OFFER.price + 1):
        with pytest.raises(RedemptionRefused, match="price"):
            check_price(OFFER, price)


# --- agreed prices ----------------------------------------------------------------------------


def test_a_perk_that_costs_more_than_was_shown_is_refused_with_its_price() -> None:
    for most in (None, 25 * LTZ, 26 * LTZ):
        check_cost(25 * LTZ, most)
    check_cost(0, 0)
    with pytest.raises(RedemptionRefused) as refused:
        check_cost(25 * LTZ + LTZ // 2, 25 * LTZ)
    assert refused.value.message == "The price is now 25.5 LTZ."


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"permit_nonce": 8}, True),
        ({"balance": 5 * LTZ - 1}, True),
        ({"claims": 2}, True),
        ({"offer": replace(OFFER, left=2)}, True),
        ({"permit_nonce": None}, False),
        ({"block_time": 9}, False),
    ],
)
def test_a_redemption_begins_anew_only_if_its_facts_have_changed(
    changes: dict[str, Any], expected: bool
) -> None:
    changed = replace(STANDING, **changes)
    assert changed.differs_from(STANDING) is STANDING.differs_from(changed) is expected


# --- refusals of other surfaces ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (ClaimLimitReached("x", collectionId=1), "as often as it allows"),
        (RateLimited("x", limit=35, retryAfterSeconds=61), "try again in 2 minutes."),
        (RateLimited("x", limit=35, retryAfterSeconds=60), "try again in 1 minute."),
        (RateLimited("x", reason="gas_budget_exhausted", retryAfterSeconds=9), "tomorrow"),
        (total_exhausted(9), "redeemed again tomorrow"),
        (ValidationFailed("x", constraint="ltz_balance"), "conditions"),
        (
            ValidationFailed("x", constraint="chat_role", reason="account_not_linked"),
            "link your account",
        ),
        (
            ValidationFailed("x", constraint="chat_role", reason="account_in_use"),
            "another wallet",
        ),
        (ValidationFailed("The permit's signature is not its owner's"), "could not be redeemed"),
        (TransactionFailed("x", reason="SoldOut(id: 1)"), "sold out"),
        (RedemptionRefused("As it stands."), "As it stands."),
    ],
)
def test_a_refusal_has_a_text_for_people(refusal: Refused, words: str) -> None:
    assert words in refusal_sentence(refusal)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("OutOfStock(itemId: 1, left: 0)", "sold out"),
        ("ItemInactive(itemId: 1)", "no longer offered"),
        ("UnknownCollection", "no longer offered"),
        ("PriceAboveMax(price: 2, maxPrice: 1)", "price"),
        ("ERC20InsufficientBalance(sender: 0x, balance: 0, needed: 1)", "not hold enough"),
        ("Panic: division by zero", "could not be redeemed"),
        ("", "could not be redeemed"),
    ],
)
def test_a_contracts_revert_reason_is_not_shown_to_people(reason: str, words: str) -> None:
    sentence = revert_sentence(reason)
    assert words in sentence
    assert reason.partition("(")[0] not in sentence or not reason


def test_only_high_gas_prices_are_blamed_on_the_market() -> None:
    assert is_gas_too_dear(ValidationFailed("x", gasPriceGwei=300, maxGwei=100))
    assert not is_gas_too_dear(ValidationFailed("x", constraint="ltz_balance"))
    assert not is_gas_too_dear(TransactionFailed("x", reason="maxGwei"))


def test_amounts_are_shown_without_exponents() -> None:
    assert redeeming.format_ltz(1) == "0.000000000000000001 LTZ"
    assert redeeming.format_ltz(10**27) == "1000000000 LTZ"

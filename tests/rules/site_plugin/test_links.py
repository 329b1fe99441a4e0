"""Link codes: readable and hard to guess, with a limit of attempts."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.errors import TooManyAttempts
from ltzd.rules.site_plugin.links import (
    ALPHABET,
    CODE_ENTROPY_BYTES,
    CODE_LENGTH,
    MOST_WRONG_CODES,
    WRONG_CODES_WINDOW,
    CodeAttempts,
    add_wrong_code,
    check_attempts,
    code_of,
    normalized_code,
)

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
ENTROPY = st.binary(min_size=CODE_ENTROPY_BYTES, max_size=CODE_ENTROPY_BYTES)


@given(ENTROPY, ENTROPY)
def test_codes_of_forty_bits_differ_as_their_randomness_does(first: bytes, second: bytes) -> None:
    assert (code_of(first) == code_of(second)) is (first == second)
    assert len(code_of(first)) == CODE_LENGTH
    assert set(code_of(first)) <= set(ALPHABET)


def test_the_alphabet_has_32_letters_and_none_that_is_read_as_another() -> None:
    assert len(set(ALPHABET)) == len(ALPHABET) == 32
    assert not set(ALPHABET) & set("ILOU")
    assert len(ALPHABET) ** CODE_LENGTH == 2**40


@pytest.mark.parametrize("size", [0, 4, 6])
def test_a_code_is_made_of_as_much_randomness_as_it_holds(size: int) -> None:
    with pytest.raises(ValueError, match="5 random bytes"):
        code_of(bytes(size))


@given(ENTROPY)
def test_a_code_is_the_same_however_a_person_writes_it(entropy: bytes) -> None:
    code = code_of(entropy)
    for written in (
        code.lower(),
        f" {code[:4]} - {code[4:]} ",
        code.replace("1", "I").replace("0", "O"),
        code.replace("1", "l").replace("0", "o"),
    ):
        assert normalized_code(written) == code


@pytest.mark.parametrize(
    "text", ["", " ", "7KQ2M9X", "7KQ2M9XAB", "7KQ2M9XU", "ÄKQ2M9XA", "\ud800"]
)
def test_a_malformed_code_is_none(text: str) -> None:
    assert normalized_code(text) == ""
    assert normalized_code("x" * 10**6) == ""


def test_five_wrong_codes_lock_a_member_out_for_ten_minutes_from_the_first() -> None:
    tries, now = CodeAttempts(), NOON
    for _ in range(MOST_WRONG_CODES):
        check_attempts(tries, now)
        tries = add_wrong_code(tries, now)
        now += timedelta(seconds=30)
    with pytest.raises(TooManyAttempts) as refused:
        check_attempts(tries, now)
    assert refused.value.details == {
        "limit": MOST_WRONG_CODES,
        "retryAfterSeconds": 600 - 150,
    }
    assert "8 minutes" in refused.value.message
    check_attempts(tries, NOON + WRONG_CODES_WINDOW)
    assert add_wrong_code(tries, NOON + WRONG_CODES_WINDOW) == CodeAttempts(
        1, NOON + WRONG_CODES_WINDOW
    )


@given(st.lists(st.integers(0, 400), max_size=60))
def test_at_most_five_wrong_codes_are_checked_in_ten_minutes(
    pauses: list[int],
) -> None:
    tries, now, looked_at = CodeAttempts(), NOON, list[datetime]()
    for pause in pauses:
        now += timedelta(seconds=pause)
        try:
            check_attempts(tries, now)
        except TooManyAttempts as refusal:
            seconds = refusal.details["retryAfterSeconds"]
            assert isinstance(seconds, int)
            assert 1 <= seconds <= 600
            check_attempts(tries, now + timedelta(seconds=seconds))
            continue
        tries = add_wrong_code(tries, now)
        looked_at.append(now)
        assert tries.since is not None
        within = [
            each for each in looked_at if tries.since <= each < tries.since + WRONG_CODES_WINDOW
        ]
        assert len(within) <= MOST_WRONG_CODES

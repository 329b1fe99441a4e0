"""Ids and usernames of the OAuth providers: their forms, and obvious fakes."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.errors import AccountRefused
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount, OAuthProvider
from ltzd.rules.oauth.ids import (
    OAuthIdInvalid,
    bare_username,
    check_id,
    check_username,
    example_id,
    is_same_username,
    refuse_fakes,
)

NOW = datetime(2026, 11, 20, tzinfo=UTC)
FIRST_USERS = datetime(2015, 5, 13, tzinfo=UTC).replace(tzinfo=None)
NUMBERED: tuple[OAuthProvider, ...] = (
    "discord",
    "twitter",
    "github",
    "google",
    "telegram",
    "instagram",
)
DIGITS: dict[OAuthProvider, tuple[int, int]] = {
    "discord": (17, 20),
    "twitter": (1, 19),
    "github": (1, 10),
    "google": (15, 30),
    "telegram": (1, 16),
    "instagram": (5, 25),
}
providers = st.sampled_from(PROVIDERS)


def snowflake(made: datetime) -> str:
    return str((int(made.timestamp() * 1000) - 1_420_070_400_000) << 22)


def is_id(provider: OAuthProvider, text: str) -> bool:
    try:
        check_id(provider, text)
    except OAuthIdInvalid:
        return False
    return True


def is_username(provider: OAuthProvider, text: str) -> bool:
    try:
        check_username(provider, text)
    except AccountRefused:
        return False
    return True


def fault_of(provider: OAuthProvider, id_: str, username: str | None = None) -> str | None:
    """The reason of a refusal as a fake, or None."""
    try:
        refuse_fakes(OAuthAccount(provider, id_, username), NOW)
    except AccountRefused as error:
        return str(error.details["hint"])
    return None


# --- ids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_example_id_in_a_refusal_is_valid(provider: OAuthProvider) -> None:
    with pytest.raises(OAuthIdInvalid) as caught:
        check_id(provider, "not an id!")

    assert caught.value.example == example_id(provider) == caught.value.details["example"]
    check_id(provider, caught.value.example)
    assert fault_of(provider, caught.value.example) is None


@pytest.mark.parametrize("provider", NUMBERED)
def test_ids_have_the_providers_number_of_digits(provider: OAuthProvider) -> None:
    least, most = DIGITS[provider]

    assert is_id(provider, "1" * least)
    assert is_id(provider, "1" * most)
    assert not is_id(provider, "1" * (least - 1))
    assert not is_id(provider, "1" * (most + 1))


@pytest.mark.parametrize(
    ("provider", "largest"),
    [("discord", 2**64 - 1), ("twitter", 2**63 - 1), ("telegram", 2**52 - 1)],
)
def test_no_id_is_larger_than_the_provider_can_count(provider: OAuthProvider, largest: int) -> None:
    assert is_id(provider, str(largest))
    assert not is_id(provider, str(largest + 1))


@pytest.mark.parametrize(
    ("provider", "text", "is_one"),
    [
        ("spotify", "wizzler", True),
        ("spotify", "a" * 64, True),
        ("spotify", "a" * 65, False),
        ("spotify", "a.b", False),
        ("spotify", "", False),
        ("tiktok", "f9dce9a7-01bf-4c1a-9d2e_X", True),
        ("tiktok", "ab", True),
        ("tiktok", "a", False),
        ("tiktok", "a" * 128, True),
        ("tiktok", "a" * 129, False),
        ("tiktok", "a/b", False),
    ],
)
def test_ids_that_are_text(provider: OAuthProvider, text: str, is_one: bool) -> None:
    assert is_id(provider, text) is is_one


@given(providers, st.text(max_size=40))
def test_an_id_is_ascii_without_controls_and_fit_for_a_url(
    provider: OAuthProvider, text: str
) -> None:
    if is_id(provider, text):
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,128}", text)


@given(st.sampled_from(NUMBERED), st.text(st.characters(categories=["Nd", "No", "Nl"]), min_size=1))
def test_digits_of_other_scripts_are_no_digits(provider: OAuthProvider, text: str) -> None:
    if not text.isascii():
        assert not is_id(provider, text)


@given(providers, st.sampled_from(["\n", "\r\n", "\0", "\x1b", " ", "\u200b", "\u202e", "\x85"]))
def test_invisible_characters_around_an_id_are_refused(
    provider: OAuthProvider, hidden: str
) -> None:
    good = example_id(provider)

    assert not is_id(provider, good + hidden)
    assert not is_id(provider, hidden + good)


@pytest.mark.parametrize("text", ["-5", "+5", "1e5", "0x10", "1_000", "\uff15", "\u00b2"])
def test_other_spellings_of_numbers_that_python_accepts_are_refused_as_ids(text: str) -> None:
    assert not is_id("github", text)


# --- usernames ----------------------------------------------------------------------------------

GOOD_USERNAMES: dict[OAuthProvider, list[str]] = {
    "discord": ["ab", "ann.b_1", "a" * 32, "Ann#1234", "ann#0", "heretic", "everyone1"],
    "twitter": ["a", "Ann_B", "a" * 15],
    "github": ["a", "ann-b", "Ann1", "a" * 39],
    "google": ["ann@gmail.com", "ann.b+c@mail.example.co.uk"],
    "telegram": ["anna", "Ann_B1", "a" * 32],
    "spotify": ["31xyzab", "Ann B.", "\u00e9lodie", "a" * 64],
    "instagram": ["a", "ann.b_1", "a" * 30],
    "tiktok": ["an", "ann.b_1", "a" * 24],
}
BAD_USERNAMES: dict[OAuthProvider, list[str]] = {
    "discord": [
        *("", "a", "a" * 33, "Ann", "a..b", "ann b", "everyone", "here", "ann#12", "ann#12345"),
        *("discord", "my_discord", "MyDiscord#1234", "Everyone#1234", "\u0430nn"),
    ],
    "twitter": ["", "a" * 16, "ann-b", "ann.b"],
    "github": ["", "-ann", "ann-", "ann--b", "ann_b", "a" * 40],
    "google": ["", "ann", "ann@", "@gmail.com", "ann@gmail", "ann@.com", "a b@gmail.com"],
    "telegram": ["", "ann", "1anna", "_anna", "a" * 33, "anna-b"],
    "spotify": ["", "a" * 65, "ann\n", "ann\u202eb", "\x00"],
    "instagram": ["", ".ann", "ann.", "a..b", "ann-b", "a" * 31],
    "tiktok": ["", "a", "ann.", "ann-b", "a" * 25],
}


@pytest.mark.parametrize(
    ("provider", "name"), [(name, text) for name, good in GOOD_USERNAMES.items() for text in good]
)
def test_usernames_of_the_providers_form_pass(provider: OAuthProvider, name: str) -> None:
    check_username(provider, name)
    check_username(provider, f"@{name}")


@pytest.mark.parametrize(
    ("provider", "name"), [(name, text) for name, bad in BAD_USERNAMES.items() for text in bad]
)
def test_other_usernames_are_refused_with_the_rule_and_without_the_name(
    provider: OAuthProvider, name: str
) -> None:
    with pytest.raises(AccountRefused) as caught:
        check_username(provider, name)

    assert "username" in str(caught.value.details["hint"])
    assert caught.value.details["provider"] == provider
    assert len(name) < 4 or name not in f"{caught.value} {caught.value.details['hint']}"


@given(providers, st.text(max_size=70))
def test_a_username_that_passes_is_printable_and_one_line(
    provider: OAuthProvider, name: str
) -> None:
    if is_username(provider, name):
        assert bare_username(name).isprintable()
        assert not re.search(r"[\r\n\u202a-\u202e\u2028]", name)


def test_only_one_at_sign_is_stripped() -> None:
    assert bare_username("@ann") == bare_username("ann") == "ann"
    assert not is_username("twitter", "@@ann")


@pytest.mark.parametrize(
    ("provider", "first", "second", "is_same"),
    [
        ("github", "@Ann", "ann", True),
        ("discord", "ann#0", "ann", True),
        ("discord", "ann#1234", "ann", False),
        ("tiktok", "ann#0", "ann", False),
        ("twitter", "ann", "anne", False),
    ],
)
def test_usernames_are_compared_as_the_providers_do(
    provider: OAuthProvider, first: str, second: str, is_same: bool
) -> None:
    assert is_same_username(provider, first, second) is is_same


# --- fakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "id_"),
    [
        ("discord", "111111111111111111"),
        ("discord", "123456789012345678"),
        ("discord", "12345678901234567"),
        ("discord", "012345678901234567"),
        ("discord", "000000000000000000"),
        ("discord", "99999999999999999999"[:19]),
        ("discord", "10000000000000000000"),
        ("google", "123456789012345678901"),
        ("twitter", "0"),
        ("twitter", "1234567890"),
        ("github", "000123"),
        ("github", "1234567890"),
        ("github", "77777"),
        ("telegram", "0123456789"),
        ("instagram", "00000"),
        ("spotify", "test"),
        ("spotify", "fakeuser"),
        ("spotify", "aaaaa"),
        ("spotify", "0123456789"),
        ("tiktok", "my-test_7"),
        ("tiktok", "00000000"),
    ],
)
def test_obvious_fakes_are_refused_though_their_form_is_right(
    provider: OAuthProvider, id_: str
) -> None:
    check_id(provider, id_)

    assert fault_of(provider, id_) is not None


@pytest.mark.parametrize(
    ("provider", "id_"),
    [
        ("github", "1"),
        ("github", "7777"),
        ("github", "123456789"),
        ("twitter", "12"),
        ("discord", "112233445566778899"),
        ("spotify", "contest"),
        ("spotify", "1112345678"),
        ("spotify", "0112345678"),
        ("tiktok", "testarossa"),
    ],
)
def test_unusual_ids_of_real_accounts_are_no_fakes(provider: OAuthProvider, id_: str) -> None:
    assert is_id(provider, id_)
    assert fault_of(provider, id_) is None


def test_a_discord_id_from_the_future_is_a_fake_and_one_of_this_minute_is_none() -> None:
    assert fault_of("discord", snowflake(NOW)) is None
    assert fault_of("discord", snowflake(NOW + timedelta(seconds=30))) is None
    hint = fault_of("discord", snowflake(NOW + timedelta(minutes=2)))
    assert hint is not None
    assert "future" in hint


@pytest.mark.parametrize(
    ("provider", "name", "is_fake"),
    [
        ("discord", "test", True),
        ("discord", "test_user", True),
        ("github", "Test123", True),
        ("github", "octo-fake", True),
        ("twitter", "@TestUser", True),
        ("telegram", "example_1", True),
        ("google", "test@gmail.com", True),
        ("google", "ann@test.example.com", False),
        ("github", "contest", False),
        ("discord", "fakemoustache", False),
        ("twitter", "latest_ann", False),
        ("github", "mytest1", False),
    ],
)
def test_a_fakes_word_counts_only_where_it_stands_alone(
    provider: OAuthProvider, name: str, is_fake: bool
) -> None:
    check_username(provider, name)

    assert (fault_of(provider, example_id(provider), name) is not None) is is_fake


@given(st.datetimes(FIRST_USERS, NOW.replace(tzinfo=None), timezones=st.just(UTC)))
def test_the_id_of_any_time_in_discords_history_is_accepted(made: datetime) -> None:
    id_ = snowflake(made)

    check_id("discord", id_)
    assert fault_of("discord", id_) is None


@given(st.sampled_from(NUMBERED), st.integers(min_value=0, max_value=10**30))
def test_no_account_has_two_ids(provider: OAuthProvider, number: int) -> None:
    """An id with leading zeros is refused by one of the two rules."""
    text = "0" + str(number)

    assert not is_id(provider, text) or fault_of(provider, text) is not None


@given(providers, st.text(max_size=150), st.none() | st.text(max_size=70))
def test_every_text_is_valid_or_refused_with_a_reason(
    provider: OAuthProvider, id_: str, name: str | None
) -> None:
    """No other error is raised, and the reason does not repeat the id."""
    if is_id(provider, id_):
        hint = fault_of(provider, id_, name)
        assert hint is None or len(id_) < 6 or id_ not in hint

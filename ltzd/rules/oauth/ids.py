"""Ids and usernames at the OAuth providers: their forms, and obvious fakes.

An id is refused in one of two ways, because the caller must react differently:

- `check_id`: the text does not have the form of the provider's ids, so it is not an id.
  `OAuthIdInvalid` has the form and a valid example.
- `refuse_fakes`: the form is right, but no account has the id: one repeated digit, digits counted
  up as in 1234567890, a leading zero (so that no account has two ids), a Discord id from the future
  (such as all of twenty digits), or a word such as "test" in a name. Raises AccountRefused.

A username without the provider's form is also AccountRefused: the id may be right, but id and
username do not belong to one account. Only ASCII digits and letters are accepted.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from ltzd.errors import AccountRefused, Refused
from ltzd.rules.oauth.accounts import OAuthAccount, OAuthProvider

TITLES: Final[Mapping[OAuthProvider, str]] = {
    "discord": "Discord",
    "twitter": "Twitter",
    "github": "GitHub",
    "google": "Google",
    "telegram": "Telegram",
    "spotify": "Spotify",
    "instagram": "Instagram",
    "tiktok": "TikTok",
}

_DISCORD_EPOCH_MS: Final = 1_420_070_400_000
_CLOCK_SKEW: Final = timedelta(minutes=1)
"""The most by which the provider's clock may be ahead: an account may have been made just now."""

_MIN_REPEATED: Final = 5
"""Shorter ids of one digit belong to old accounts at providers that count ids from 1."""
_COUNTED_UP: Final = "1234567890"


class OAuthIdInvalid(Refused):
    """Has the details of spec 7.3: `details`, the form of ids, and `example`."""

    def __init__(self, provider: OAuthProvider, reason: str, example: str) -> None:
        super().__init__(f"Invalid {TITLES[provider]} user id", details=reason, example=example)
        self.provider = provider
        self.reason = reason
        self.example = example


class _Form(msgspec.Struct, frozen=True):
    """`largest` is the highest id that the provider can give, if its ids are numbers."""

    ids: re.Pattern[str]
    id_rule: str
    example: str
    usernames: re.Pattern[str]
    username_rule: str
    largest: int | None = None

    @property
    def is_number(self) -> bool:
        return self.largest is not None


_ANY_NUMBER: Final = 10**30
_EMAIL: Final = re.compile(r"[^\s@]{1,64}@(?:[^\s@.]{1,63}\.)+[^\s@.]{2,63}")

_FORMS: Final[Mapping[OAuthProvider, _Form]] = {
    "discord": _Form(
        re.compile(r"[0-9]{17,20}"),
        "must be 17 to 20 digits",
        "308994132968210433",
        re.compile(
            r"(?i:(?!.*discord)(?!(?:everyone|here)(?:#|$)))"
            r"(?:(?!.*\.\.)[a-z0-9_.]{2,32}|(?i:[a-z0-9_.]{2,32}#(?:[0-9]{4}|0)))"
        ),
        "has 2 to 32 lower-case letters, digits, _ and single dots, or the old form name#1234",
        largest=2**64 - 1,
    ),
    "twitter": _Form(
        re.compile(r"[0-9]{1,19}"),
        "must be 1 to 19 digits",
        "2244994945",
        re.compile(r"[A-Za-z0-9_]{1,15}"),
        "has 1 to 15 letters, digits and _",
        largest=2**63 - 1,
    ),
    "github": _Form(
        re.compile(r"[0-9]{1,10}"),
        "must be 1 to 10 digits",
        "583231",
        re.compile(r"(?=.{1,39}$)[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"),
        "has 1 to 39 letters, digits and single hyphens inside",
        largest=10**10 - 1,
    ),
    "google": _Form(
        re.compile(r"[0-9]{15,30}"),
        "must be 15 to 30 digits",
        "108204268033311374519",
        _EMAIL,
        "is the account's e-mail address",
        largest=_ANY_NUMBER,
    ),
    "telegram": _Form(
        re.compile(r"[0-9]{1,16}"),
        "must be 1 to 16 digits",
        "5394817206",
        re.compile(r"[A-Za-z][A-Za-z0-9_]{3,31}"),
        "has 4 to 32 letters, digits and _, and begins with a letter",
        largest=2**52 - 1,
    ),
    "spotify": _Form(
        re.compile(r"[A-Za-z0-9]{1,64}"),
        "must be 1 to 64 letters and digits",
        "wizzler",
        re.compile(r".{1,64}"),
        "has 1 to 64 characters",
    ),
    "instagram": _Form(
        re.compile(r"[0-9]{5,25}"),
        "must be 5 to 25 digits",
        "17841405793187218",
        re.compile(r"(?!.*\.\.)(?!\.)[A-Za-z0-9._]{1,30}(?<!\.)"),
        "has 1 to 30 letters, digits, _ and single dots inside",
        largest=_ANY_NUMBER,
    ),
    "tiktok": _Form(
        re.compile(r"[A-Za-z0-9_-]{2,128}"),
        "must be 2 to 128 letters, digits, hyphens and _",
        "723f24d7-e717-40f8-a2b6-cb8464cd23b4",
        re.compile(r"[A-Za-z0-9._]{2,24}(?<!\.)"),
        "has 2 to 24 letters, digits, _ and dots, and does not end in a dot",
    ),
}

_NOT_LETTERS = re.compile(r"[^a-z]+")
_FAKE_WORDS: Final = frozenset(
    word + end
    for word in ("test", "fake", "example", "dummy")
    for end in ("", "user", "account", "username")
)


def check_id(provider: OAuthProvider, text: str) -> None:
    """Raises OAuthIdInvalid for a text that cannot be an id at the provider."""
    form = _FORMS[provider]
    if not form.ids.fullmatch(text):
        raise OAuthIdInvalid(provider, form.id_rule, form.example)
    if form.largest is not None and int(text) > form.largest:
        raise OAuthIdInvalid(provider, f"must be at most {form.largest}", form.example)


def example_id(provider: OAuthProvider) -> str:
    return _FORMS[provider].example


def bare_username(text: str) -> str:
    """The username without a leading @."""
    return text.removeprefix("@")


def check_username(provider: OAuthProvider, text: str) -> None:
    """A leading @ is ignored. Raises AccountRefused."""
    form = _FORMS[provider]
    name = bare_username(text)
    # A pattern's "." also matches invisible characters, such as marks of writing direction.
    if not form.usernames.fullmatch(name) or not name.isprintable():
        raise _refusal(provider, f"A {TITLES[provider]} username {form.username_rule}")


def is_same_username(provider: OAuthProvider, first: str, second: str) -> bool:
    """Letter case does not count at any provider, nor does a final #0 at Discord."""
    first, second = (bare_username(name).lower() for name in (first, second))
    if provider == "discord":
        first, second = first.removesuffix("#0"), second.removesuffix("#0")
    return first == second


def refuse_fakes(account: OAuthAccount, now: datetime) -> None:
    """Raises AccountRefused. The account's id and username must have the right form already."""
    reason = _fault_of_id(account.provider, account.user_id, now)
    if reason is None and _is_made_up(account):
        reason = "The username is that of a test or fake account"
    if reason is not None:
        raise _refusal(account.provider, reason)


def _fault_of_id(provider: OAuthProvider, text: str, now: datetime) -> str | None:
    is_number = _FORMS[provider].is_number
    if is_number and text.startswith("0"):
        return "No account has an id that begins with 0"
    if len(text) >= _MIN_REPEATED and len(set(text)) == 1:
        return "The id is one character over and over"
    if text.startswith((_COUNTED_UP, "0123456789")):
        return "The id is a made-up one: digits counted up"
    if not is_number and _has_fake_word(text):
        return "The id is that of a test or fake account"
    if provider == "discord" and _made_at_ms(int(text)) > _ms(now + _CLOCK_SKEW):
        return "The id tells when the account was made, and that is in the future"
    return None


def _made_at_ms(snowflake: int) -> int:
    return (snowflake >> 22) + _DISCORD_EPOCH_MS


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _is_made_up(account: OAuthAccount) -> bool:
    name = bare_username(account.username or "")
    # A user does not choose the domain of an e-mail address, so it does not count.
    return _has_fake_word(name.rpartition("@")[0] if account.provider == "google" else name)


def _has_fake_word(text: str) -> bool:
    """Look for whole words: in "test_1", but not in "contest" and "testarossa"."""
    return not _FAKE_WORDS.isdisjoint(_NOT_LETTERS.split(text.lower()))


def _refusal(provider: OAuthProvider, hint: str) -> AccountRefused:
    return AccountRefused("Invalid OAuth credentials", hint=hint, provider=provider)

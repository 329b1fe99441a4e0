"""Translates accounts into the identity provider's rows, for imports, and its rows into accounts.

The provider makes a user for a single account, in a form that it publishes. An account without that
form is refused here, before the provider is asked. Only the fields that the form demands are sent:
an e-mail address goes along with a Google account alone, as a part of that account.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ltzd.errors import AccountRefused, InvalidFields, LtzdError
from ltzd.providers.email_addresses import proven_address
from ltzd.providers.outbound.http_client import MalformedAnswerError
from ltzd.rules.oauth.accounts import OAuthAccount, OAuthProvider

MAX_ACCOUNTS = 64
"""Accounts of one user that are read; later ones are ignored."""

_SUBJECT = re.compile(r"[\x21-\x7e]{1,255}")
_FORBIDDEN = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"
_EMAIL = re.compile(rf"[^@\s{_FORBIDDEN}]{{1,64}}@[^@\s{_FORBIDDEN}]{{1,189}}")
_NAME = re.compile(rf"[^{_FORBIDDEN}]{{1,256}}")
_SHORT_NAME = re.compile(rf"[^{_FORBIDDEN}]{{1,50}}")


class _Field(msgspec.Struct, frozen=True):
    """`accepted` describes the pattern to a caller, after "the identity provider takes"."""

    pattern: re.Pattern[str]
    accepted: str


class _Kind(msgspec.Struct, frozen=True):
    """`key` is the row's field with the account's id, `required` the other fields of an import.

    `lookup` is a path under /v1/users and the row's field that goes into its body.
    """

    type: str
    required: Mapping[str, _Field] = msgspec.field(default_factory=dict)
    lookup: tuple[str, str] | None = None
    key: str = "subject"
    id_pattern: re.Pattern[str] = _SUBJECT


def _username(pattern: str, accepted: str) -> Mapping[str, _Field]:
    return {"username": _Field(re.compile(pattern), accepted)}


_AN_EMAIL = _Field(_EMAIL, "an e-mail address")
_A_NAME = _Field(_NAME, "1 to 256 characters")
_A_SHORT_NAME = _Field(_SHORT_NAME, "1 to 50 characters")

# The vendor's own patterns. Some refuse names that real accounts have, such as ada.l at TikTok or
# hereford at Discord. A refused name is not altered: the altered name may be another person's, and
# the vendor's tokens would name that person.
# The vendor has no look-up for google and tiktok. For discord, github and instagram it looks up by
# username only, and the present holder of a username need not be the account.
_KINDS: Mapping[OAuthProvider, _Kind] = {
    "discord": _Kind(
        "discord_oauth",
        _username(
            r"(?!discord|everyone|here)[0-9a-zA-Z_.]{2,32}(?:#(?:[0-9]{4}|0))?",
            "2 to 32 letters, digits, _ and dots, which do not begin with discord, everyone or "
            "here",
        ),
        ("discord/username", "username"),
        id_pattern=re.compile(r"[0-9]{17,20}"),
    ),
    "twitter": _Kind(
        "twitter_oauth",
        {
            "name": _A_SHORT_NAME,
            **_username(r"[0-9a-zA-Z|_]{1,15}", "1 to 15 letters, digits and _"),
        },
        ("twitter/subject", "subject"),
    ),
    "github": _Kind(
        "github_oauth",
        _username(
            r"(?=.{1,39}\Z)[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*",
            "1 to 39 letters, digits and single hyphens inside",
        ),
        ("github/username", "username"),
    ),
    "google": _Kind("google_oauth", {"email": _AN_EMAIL, "name": _A_NAME}),
    "telegram": _Kind(
        "telegram",
        lookup=("telegram/telegram_user_id", "telegram_user_id"),
        key="telegram_user_id",
    ),
    "spotify": _Kind("spotify_oauth", lookup=("spotify/subject", "subject")),
    "instagram": _Kind(
        "instagram_oauth",
        _username(
            r"(?!instagram|everyone|here)[0-9a-zA-Z._]{2,32}",
            "2 to 32 letters, digits, _ and dots, which do not begin with instagram, everyone or "
            "here",
        ),
        ("instagram/username", "username"),
    ),
    "tiktok": _Kind(
        "tiktok_oauth",
        _username(
            r"(?!tiktok|everyone|here)[0-9a-zA-Z]{2,32}",
            "2 to 32 letters and digits, no dot and no _, which do not begin with tiktok, "
            "everyone or here",
        ),
    ),
}
_PROVIDERS: Mapping[str, OAuthProvider] = {kind.type: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class UserQuery:
    """A query for the one user that lists `row`; a creation with `row` makes that user.

    `lookup` is a path under /v1/users and its body. `refused` is raised when the provider refuses
    the name itself, `elsewhere` when the user in its answer does not list `row`.
    """

    row: Mapping[str, str] = field(repr=False)
    key: str
    lookup: tuple[str, Mapping[str, str]] | None = field(repr=False)
    refused: LtzdError
    elsewhere: Exception

    def is_listed_in(self, rows: Sequence[object]) -> bool:
        kind, name = self.row["type"], self._comparable(self.row[self.key])
        return any(
            row["type"] == kind and self._comparable(row.get(self.key)) == name
            for row in _known_rows(rows)
        )

    def _comparable(self, name: object) -> object:
        return name.lower() if self.key == "address" and isinstance(name, str) else name


def email_query(email: str) -> UserQuery:
    return UserQuery(
        {"type": "email", "address": email},
        "address",
        ("email/address", {"address": email}),
        InvalidFields(["userEmail: the identity provider refuses this address"]),
        MalformedAnswerError("the user does not have the requested e-mail address"),
    )


def account_query(account: OAuthAccount) -> UserQuery:
    """Raises AccountRefused."""
    kind = _KINDS[account.provider]
    row = _row(kind, account)
    lookup = None
    if kind.lookup is not None:
        path, name = kind.lookup
        lookup = (path, {name: row[name]})
    return UserQuery(
        row,
        kind.key,
        lookup,
        _refused("the identity provider refuses this account"),
        _refused("the account's details belong to another user"),
    )


def accounts_in(rows: Sequence[object]) -> tuple[OAuthAccount, ...]:
    """Return the accounts that are proven to be the user's.

    Takes a user's full rows and an identity token's short ones. E-mail addresses are left out: an
    account that was imported and never used has the address that its importer gave.
    """
    accounts: dict[OAuthAccount, None] = {}
    for row in _known_rows(rows):
        account = _account_in(row) if _is_verified(row) else None
        if account is not None:
            accounts[account] = None
        if len(accounts) == MAX_ACCOUNTS:
            break
    return tuple(accounts)


def emails_in(rows: Sequence[object]) -> tuple[str, ...]:
    """Return the addresses that are proven to be the user's, in lower case.

    Addresses of the user's accounts at other providers are left out: an importer may have made
    them up.
    """
    addresses = (
        proven_address(row.get("address"))
        for row in _known_rows(rows)
        if row["type"] == "email" and _has_been_used(row)
    )
    return tuple(dict.fromkeys(address for address in addresses if address is not None))


def _row(kind: _Kind, account: OAuthAccount) -> dict[str, str]:
    if not kind.id_pattern.fullmatch(account.user_id):
        raise _refused("oauth_user_id: this is not an id of this provider's form")
    row = {"type": kind.type, kind.key: account.user_id}
    details = {"username": account.username, "name": _name_of(account), "email": account.email}
    for name, required in kind.required.items():
        value = details[name]
        if value is None:
            raise _refused(f"{name}: needed for this provider's accounts")
        if not required.pattern.fullmatch(value):
            raise _refused(
                f"{name}: of these accounts the identity provider takes {required.accepted}"
            )
        row[name] = value
    return row


def _name_of(account: OAuthAccount) -> str | None:
    """Twitter's accounts need a name: the username replaces a missing or malformed one."""
    if account.provider != "twitter":
        return account.name
    is_valid = account.name is not None and _SHORT_NAME.fullmatch(account.name) is not None
    return account.name if is_valid else account.username


def _account_in(row: Mapping[str, object]) -> OAuthAccount | None:
    provider = _PROVIDERS.get(str(row["type"]))
    if provider is None:
        return None
    user_id = row.get(_KINDS[provider].key)
    if not isinstance(user_id, str) or not _SUBJECT.fullmatch(user_id):
        return None
    return OAuthAccount(provider, user_id, _name_in(row.get("username")), _name_in(row.get("name")))


def _name_in(value: object) -> str | None:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def _is_verified(row: Mapping[str, object]) -> bool:
    """The time is null if the account was imported and its owner has never logged in with it."""
    return all(row.get(name, 0) is not None for name in ("latest_verified_at", "lv"))


def _has_been_used(row: Mapping[str, object]) -> bool:
    """Whether the owner has logged in with the account, and the row has the time."""
    return _is_verified(row) and any(name in row for name in ("latest_verified_at", "lv"))


def _known_rows(rows: Sequence[object]) -> Iterator[Mapping[str, object]]:
    return (row for row in rows if isinstance(row, dict) and isinstance(row.get("type"), str))


def _refused(hint: str) -> AccountRefused:
    return AccountRefused("invalid OAuth credentials", hint=hint)

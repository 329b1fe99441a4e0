"""The linked accounts of the identity provider's users: their fields, rules and look-ups.

The rules are those of the vendor's published specification. `key` is the field that identifies an
account of its type.
"""

import hashlib
import re
from collections.abc import Mapping

import msgspec

from ltzd.dev.sandbox.requests import BadInputError, Body, email_in, text_in

Account = dict[str, object]
Key = tuple[str, str, str]
"""Type, field and value."""

_ANY = re.compile(r".+", re.DOTALL)
_SUBJECT = re.compile(r"[\x20-\x7e]{1,256}")


class AccountKind(msgspec.Struct, frozen=True):
    key: str
    required: Mapping[str, re.Pattern[str]]
    optional: tuple[str, ...] = ()


KINDS: Mapping[str, AccountKind] = {
    "email": AccountKind("address", {"address": _ANY}),
    "phone": AccountKind("number", {"number": re.compile(r"\+?[0-9 ()-]{4,32}")}),
    "wallet": AccountKind(
        "address",
        {
            "address": re.compile(r"0x[0-9a-fA-F]{40}"),
            "chain_type": re.compile("ethereum"),
        },
    ),
    "custom_auth": AccountKind("custom_user_id", {"custom_user_id": _SUBJECT}),
    "discord_oauth": AccountKind(
        "subject",
        {
            "subject": re.compile(r"[0-9]{17,20}"),
            "username": re.compile(
                r"(?!discord|everyone|here)[0-9a-zA-Z_.]{2,32}(?:#(?:[0-9]{4}|0))?"
            ),
        },
        ("email",),
    ),
    "twitter_oauth": AccountKind(
        "subject",
        {
            "subject": _SUBJECT,
            "name": re.compile(r".{1,50}"),
            "username": re.compile(r"[0-9a-zA-Z|_]{1,15}"),
        },
        ("profile_picture_url",),
    ),
    "github_oauth": AccountKind(
        "subject",
        {
            "subject": _SUBJECT,
            "username": re.compile(r"(?=.{1,39}\Z)[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*"),
        },
        ("name", "email"),
    ),
    "google_oauth": AccountKind("subject", {"subject": _SUBJECT, "email": _ANY, "name": _ANY}),
    "telegram": AccountKind(
        "telegram_user_id",
        {"telegram_user_id": _SUBJECT},
        ("first_name", "last_name", "username", "photo_url"),
    ),
    "spotify_oauth": AccountKind("subject", {"subject": _SUBJECT}, ("name", "email")),
    "instagram_oauth": AccountKind(
        "subject",
        {
            "subject": _SUBJECT,
            "username": re.compile(r"(?!instagram|everyone|here)[0-9a-zA-Z._]{2,32}"),
        },
    ),
    "tiktok_oauth": AccountKind(
        "subject",
        {
            "subject": _SUBJECT,
            "username": re.compile(r"(?!tiktok|everyone|here)[0-9a-zA-Z]{2,32}"),
        },
        ("name",),
    ),
}

LOOKUPS: Mapping[str, tuple[str, str, str]] = {
    # Path under /v1/users -> account type, field of the body, field of the account.
    # The vendor has no look-up for google and tiktok accounts.
    "email/address": ("email", "address", "address"),
    "phone/number": ("phone", "number", "number"),
    "wallet/address": ("wallet", "address", "address"),
    "custom_auth/id": ("custom_auth", "custom_user_id", "custom_user_id"),
    "discord/username": ("discord_oauth", "username", "username"),
    "github/username": ("github_oauth", "username", "username"),
    "twitter/subject": ("twitter_oauth", "subject", "subject"),
    "twitter/username": ("twitter_oauth", "username", "username"),
    "telegram/telegram_user_id": ("telegram", "telegram_user_id", "telegram_user_id"),
    "telegram/username": ("telegram", "username", "username"),
    "instagram/username": ("instagram_oauth", "username", "username"),
    "spotify/subject": ("spotify_oauth", "subject", "subject"),
}

OAUTH_KINDS: Mapping[str, str] = {
    "discord": "discord_oauth",
    "twitter": "twitter_oauth",
    "github": "github_oauth",
    "google": "google_oauth",
    "telegram": "telegram",
    "spotify": "spotify_oauth",
    "instagram": "instagram_oauth",
    "tiktok": "tiktok_oauth",
}

_IDS = {"subject", "telegram_user_id", "custom_user_id"}
_LOOKED_UP = {(kind, field) for kind, _, field in LOOKUPS.values()}


def parse_account(value: object, place: str) -> Account:
    """Parse a linked account; `place` is its path in the request, for errors."""
    if not isinstance(value, dict):
        raise BadInputError(place, "must be a JSON object")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadInputError(f"{place}.type", f"must be one of {', '.join(KINDS)}")
    try:
        return {"type": kind, **_checked_fields(KINDS[kind], value)}
    except BadInputError as error:
        raise BadInputError(f"{place}.{error.field}", str(error).partition(": ")[2]) from None


def index_keys(account: Mapping[str, object]) -> list[Key]:
    """All keys that find this account."""
    kind = str(account["type"])
    fields = {KINDS[kind].key} | {field for name, field in _LOOKED_UP if name == kind}
    return [
        index_key(kind, field, str(account[field])) for field in sorted(fields) if field in account
    ]


def index_key(kind: str, field: str, value: str) -> Key:
    """Ids are case-sensitive; all other values are not."""
    return kind, field, value if field in _IDS else value.lower()


def identity_key(account: Mapping[str, object]) -> Key:
    kind = str(account["type"])
    field = KINDS[kind].key
    return index_key(kind, field, str(account[field]))


def claimed_email(account: Mapping[str, object]) -> Key | None:
    """The key of the e-mail account that an OAuth account's address refers to."""
    email = None if account["type"] == "email" else account.get("email")
    return None if email is None else index_key("email", "address", str(email))


def generated_account(provider: str, account_id: str) -> Account:
    """An account as after its owner's first log-in, with generated names. Raises BadInputError."""
    if provider not in OAUTH_KINDS:
        raise BadInputError("provider", f"must be one of {', '.join(OAUTH_KINDS)}")
    kind = OAUTH_KINDS[provider]
    name = "u" + hashlib.sha256(account_id.encode()).hexdigest()[:12]
    generated = {"username": name, "name": name, "email": f"{name}@{provider}.example"}
    fields = {field: generated[field] for field in KINDS[kind].required if field in generated}
    try:
        return parse_account({"type": kind, **fields, KINDS[kind].key: account_id}, "id")
    except BadInputError as error:
        raise BadInputError("id", str(error).partition(": ")[2]) from None


def _checked_fields(kind: AccountKind, value: Body) -> Account:
    fields: Account = {}
    for name, pattern in kind.required.items():
        text = email_in(value, name) if _is_email(kind, name) else text_in(value, name)
        if not pattern.fullmatch(text):
            raise BadInputError(name, "does not have the required format")
        fields[name] = text
    for name in kind.optional:
        if value.get(name) is not None:
            fields[name] = text_in(value, name, longest=2048)
    return fields


def _is_email(kind: AccountKind, name: str) -> bool:
    return name == "email" or (name == "address" and kind is KINDS["email"])

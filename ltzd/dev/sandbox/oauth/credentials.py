"""What the sandbox's OAuth providers are asked with: made once, kept in the journal."""

import hmac
import secrets
import time
from collections.abc import Mapping
from typing import Final, Self

from ltzd.dev.sandbox.journal import Record

_NAMES: Final = (
    "discord",
    "twitter",
    "github",
    "google",
    "telegram",
    "spotify",
    "instagram",
    "tiktok",
)
CLIENT_ID: Final = "ltzd-sandbox"
INSTAGRAM_USER: Final = "17841405822304914"
"""Whose business discovery is used."""
TOKEN_SECONDS: Final = 3600


class AccountCredentials:
    """`of` is a provider's token, key or client secret."""

    def __init__(self, kept: Mapping[str, str]) -> None:
        self.of = kept

    @classmethod
    def new(cls) -> Self:
        made = {name: secrets.token_hex(24) for name in _NAMES}
        bot = f"{secrets.randbelow(9 * 10**9) + 10**9}"
        return cls(made | {"telegram": f"{bot}:{secrets.token_urlsafe(26)}"})

    @classmethod
    def from_record(cls, record: Record) -> Self:
        return cls({name: str(record[name]) for name in _NAMES})

    def as_record(self) -> Record:
        return {"kind": "credentials", **self.of}

    def matches(self, name: str, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.of[name].encode())


class ClientTokenStore:
    """Tokens for client credentials; they end with the process."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}

    def new(self) -> str:
        now = time.monotonic()
        self._ends = {token: end for token, end in self._ends.items() if end > now}
        token = secrets.token_urlsafe(48)
        self._ends[token] = now + TOKEN_SECONDS
        return token

    def is_valid(self, authorization: str | None) -> bool:
        scheme, _, token = (authorization or "").partition(" ")
        return scheme == "Bearer" and self._ends.get(token, 0.0) > time.monotonic()

    def revoke_all(self) -> None:
        self._ends.clear()

"""Credentials of ltzd at the OAuth providers, created once and kept in the journal."""

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
"""The account whose business discovery ltzd uses."""
TOKEN_SECONDS: Final = 3600


class AccountCredentials:
    """`of` maps each provider to its token, key or client secret."""

    def __init__(self, by_provider: Mapping[str, str]) -> None:
        self.of = by_provider

    @classmethod
    def new(cls) -> Self:
        generated = {name: secrets.token_hex(24) for name in _NAMES}
        bot = f"{secrets.randbelow(9 * 10**9) + 10**9}"
        return cls(generated | {"telegram": f"{bot}:{secrets.token_urlsafe(26)}"})

    @classmethod
    def from_record(cls, record: Record) -> Self:
        return cls({name: str(record[name]) for name in _NAMES})

    def as_record(self) -> Record:
        return {"kind": "credentials", **self.of}

    def matches(self, name: str, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.of[name].encode())


class ClientTokenStore:
    """Tokens granted for client credentials, in memory only."""

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

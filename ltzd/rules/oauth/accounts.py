"""Accounts at the OAuth providers that wallets are made for (spec 4.5)."""

from typing import Final, Literal, get_args

import msgspec

OAuthProvider = Literal[
    "discord", "twitter", "github", "google", "telegram", "spotify", "instagram", "tiktok"
]
PROVIDERS: Final[tuple[OAuthProvider, ...]] = get_args(OAuthProvider)
"""In the order in which a refusal lists them."""


class OAuthAccount(msgspec.Struct, frozen=True):
    """`user_id` is the provider's id and never changes. Other fields may change, or be unknown."""

    provider: OAuthProvider
    user_id: str
    username: str | None = None
    name: str | None = None
    email: str | None = None

"""The credentials and limits of look-ups of accounts at OAuth providers.

`base_url` includes the version where the provider's URLs have one. A provider that is None is not
configured: its accounts cannot be checked.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

DISCORD_URL: Final = "https://discord.com/api/v10"
TWITTER_URL: Final = "https://api.x.com/2"
GITHUB_URL: Final = "https://api.github.com"
GOOGLE_URL: Final = "https://people.googleapis.com/v1"
TELEGRAM_URL: Final = "https://api.telegram.org"
SPOTIFY_URL: Final = "https://api.spotify.com/v1"
SPOTIFY_TOKEN_URL: Final = "https://accounts.spotify.com/api/token"  # noqa: S105
INSTAGRAM_URL: Final = "https://graph.facebook.com/v23.0"
TIKTOK_URL: Final = "https://open.tiktokapis.com/v2"


@dataclass(frozen=True, slots=True)
class DiscordAccess:
    """`token` is a bot's token."""

    token: str = field(repr=False)
    base_url: str = DISCORD_URL


@dataclass(frozen=True, slots=True)
class TwitterAccess:
    """`token` is an app's bearer token."""

    token: str = field(repr=False)
    base_url: str = TWITTER_URL


@dataclass(frozen=True, slots=True)
class GithubAccess:
    """Without a token GitHub answers 60 times an hour and is unavailable after that."""

    token: str | None = field(default=None, repr=False)
    base_url: str = GITHUB_URL


@dataclass(frozen=True, slots=True)
class GoogleAccess:
    api_key: str = field(repr=False)
    base_url: str = GOOGLE_URL


@dataclass(frozen=True, slots=True)
class TelegramAccess:
    """`token` is a bot's token; a bot sees only users who have written to it."""

    token: str = field(repr=False)
    base_url: str = TELEGRAM_URL


@dataclass(frozen=True, slots=True)
class SpotifyAccess:
    """With `extended_quota` the app is out of development mode, so a 404 is a missing account.

    An app in development mode gets a 403 or 404 for every other person's profile.
    """

    client_id: str
    client_secret: str = field(repr=False)
    extended_quota: bool = False
    base_url: str = SPOTIFY_URL
    token_url: str = SPOTIFY_TOKEN_URL


@dataclass(frozen=True, slots=True)
class InstagramAccess:
    """`user_id` is our own professional account, which looks up other such accounts by username."""

    user_id: str
    token: str = field(repr=False)
    base_url: str = INSTAGRAM_URL


@dataclass(frozen=True, slots=True)
class TiktokAccess:
    """Credentials of a client that TikTok has approved for its research API."""

    client_key: str
    client_secret: str = field(repr=False)
    base_url: str = TIKTOK_URL


class AccountLookupPolicy(msgspec.Struct, frozen=True):
    """`timeout_seconds` bounds one call of `AccountLookups`, repeats and queueing included;
    `attempt_seconds` bounds one request. Answers are cached for `exists_seconds`, refusals for
    `missing_seconds`.
    """

    discord: DiscordAccess | None = None
    twitter: TwitterAccess | None = None
    github: GithubAccess | None = None
    google: GoogleAccess | None = None
    telegram: TelegramAccess | None = None
    spotify: SpotifyAccess | None = None
    instagram: InstagramAccess | None = None
    tiktok: TiktokAccess | None = None
    exists_seconds: float = 3600.0
    missing_seconds: float = 60.0
    timeout_seconds: float = 4.0
    attempt_seconds: float = 1.8
    max_attempts: int = 3
    first_pause_seconds: float = 0.1
    rate_limit_pause_seconds: float = 1.0
    """The pause after a refusal for too many requests that names no time."""
    max_concurrent: int = 8
    """Look-ups at one provider at a time; each sends one request at a time."""
    max_waiting: int = 1_000
    """Look-ups in flight, of all providers."""
    max_cached: int = 10_000
    """Cached answers."""

"""The section `accounts`: a section for each OAuth provider whose accounts are looked up.

Without its section a provider is not asked whether an account exists. Every secret may be given
as a file instead.
"""

from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from ltzd.daemon.settings.section import Section, resolve_secret
from ltzd.daemon.settings.value_types import SecretFile, WebUrl
from ltzd.providers.oauth import policy as vendors
from ltzd.providers.oauth.policy import AccountLookupPolicy
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthProvider

_Secret = Annotated[SecretStr, Field(min_length=1)]
_Name = Annotated[str, Field(min_length=1)]


class _WithToken(Section):
    token: _Secret | None = None
    token_file: SecretFile | None = None

    @model_validator(mode="after")
    def _has_its_token(self) -> Self:
        self.require_exactly_one("token")
        return self

    def secret(self) -> str:
        return resolve_secret(self.token, self.token_file).get_secret_value()


class _WithClientSecret(Section):
    client_secret: _Secret | None = None
    client_secret_file: SecretFile | None = None

    @model_validator(mode="after")
    def _has_its_secret(self) -> Self:
        self.require_exactly_one("client_secret")
        return self

    def secret(self) -> str:
        return resolve_secret(self.client_secret, self.client_secret_file).get_secret_value()


class DiscordSettings(_WithToken):
    base_url: WebUrl = vendors.DISCORD_URL

    def access(self) -> vendors.DiscordAccess:
        return vendors.DiscordAccess(self.secret(), self.base_url)


class TwitterSettings(_WithToken):
    base_url: WebUrl = vendors.TWITTER_URL

    def access(self) -> vendors.TwitterAccess:
        return vendors.TwitterAccess(self.secret(), self.base_url)


class GithubSettings(Section):
    """Without a token GitHub answers 60 requests an hour; callers get 500 for the others."""

    token: _Secret | None = None
    token_file: SecretFile | None = None
    base_url: WebUrl = vendors.GITHUB_URL

    @model_validator(mode="after")
    def _has_one_token_at_most(self) -> Self:
        if self.token is not None and self.token_file is not None:
            raise ValueError("give either token or token_file")
        return self

    def access(self) -> vendors.GithubAccess:
        if self.token is None and self.token_file is None:
            return vendors.GithubAccess(None, self.base_url)
        token = resolve_secret(self.token, self.token_file).get_secret_value()
        return vendors.GithubAccess(token, self.base_url)


class GoogleSettings(Section):
    api_key: _Secret | None = None
    api_key_file: SecretFile | None = None
    base_url: WebUrl = vendors.GOOGLE_URL

    @model_validator(mode="after")
    def _has_its_key(self) -> Self:
        self.require_exactly_one("api_key")
        return self

    def access(self) -> vendors.GoogleAccess:
        key = resolve_secret(self.api_key, self.api_key_file).get_secret_value()
        return vendors.GoogleAccess(key, self.base_url)


class TelegramSettings(_WithToken):
    base_url: WebUrl = vendors.TELEGRAM_URL

    def access(self) -> vendors.TelegramAccess:
        return vendors.TelegramAccess(self.secret(), self.base_url)


class SpotifySettings(_WithClientSecret):
    client_id: _Name
    extended_quota: bool = False
    """Whether the app is out of development mode, so that a 404 is a missing account."""
    base_url: WebUrl = vendors.SPOTIFY_URL
    token_url: WebUrl = vendors.SPOTIFY_TOKEN_URL

    def access(self) -> vendors.SpotifyAccess:
        return vendors.SpotifyAccess(
            self.client_id, self.secret(), self.extended_quota, self.base_url, self.token_url
        )


class InstagramSettings(_WithToken):
    user_id: Annotated[str, Field(pattern=r"^[0-9]{5,25}$")]
    """The id of the operator's own professional account."""
    base_url: WebUrl = vendors.INSTAGRAM_URL

    def access(self) -> vendors.InstagramAccess:
        return vendors.InstagramAccess(self.user_id, self.secret(), self.base_url)


class TiktokSettings(_WithClientSecret):
    client_key: _Name
    base_url: WebUrl = vendors.TIKTOK_URL

    def access(self) -> vendors.TiktokAccess:
        return vendors.TiktokAccess(self.client_key, self.secret(), self.base_url)


class AccountSettings(Section):
    discord: DiscordSettings | None = None
    twitter: TwitterSettings | None = None
    github: GithubSettings | None = None
    google: GoogleSettings | None = None
    telegram: TelegramSettings | None = None
    spotify: SpotifySettings | None = None
    instagram: InstagramSettings | None = None
    tiktok: TiktokSettings | None = None
    exists_seconds: Annotated[float, Field(ge=0, le=86_400)] = 3600.0
    """How long the answer that an account exists is cached."""
    missing_seconds: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """How long any other answer is cached; an unavailable provider is not cached."""

    @classmethod
    def of(cls, policy: AccountLookupPolicy) -> Self:
        """The settings that result in this policy; used by dev mode."""
        given = {name: getattr(policy, name) for name in cls.model_fields}
        rows = {
            name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
            for name, value in given.items()
        }
        return cls.model_validate(rows)

    def unchecked_providers(self) -> list[OAuthProvider]:
        """The providers without a section: only the format of their ids is checked."""
        return [name for name in PROVIDERS if getattr(self, name) is None]

    def urls(self) -> Iterator[tuple[str, str]]:
        """Every URL that secrets are sent to, with its setting's name."""
        for name in type(self).model_fields:
            section = getattr(self, name)
            for url in ("base_url", "token_url"):
                if hasattr(section, url):
                    yield f"accounts.{name}.{url}", getattr(section, url)

    def policy(self) -> AccountLookupPolicy:
        """Raises Misconfigured if a secret's file cannot be read."""
        return AccountLookupPolicy(
            discord=None if self.discord is None else self.discord.access(),
            twitter=None if self.twitter is None else self.twitter.access(),
            github=None if self.github is None else self.github.access(),
            google=None if self.google is None else self.google.access(),
            telegram=None if self.telegram is None else self.telegram.access(),
            spotify=None if self.spotify is None else self.spotify.access(),
            instagram=None if self.instagram is None else self.instagram.access(),
            tiktok=None if self.tiktok is None else self.tiktok.access(),
            exists_seconds=self.exists_seconds,
            missing_seconds=self.missing_seconds,
        )

"""The request and response of pregeneration (spec 4.5).

Field names have underscores, as the specification writes them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from msgspec.structs import replace
from pydantic import ConfigDict, Field, WithJsonSchema

from ltzd.actions.pregeneration import PregenerationRequest
from ltzd.errors import MissingFields
from ltzd.http.models import RequestModel, ResponseModel
from ltzd.http.pregeneration.errors import REQUIRED, ProviderUnknown
from ltzd.http.requests.fields import BrandId, email
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount, OAuthProvider
from ltzd.rules.oauth.ids import TITLES, check_id
from ltzd.store.users.pregenerations import RecordedPregeneration
from ltzd.values import address_of, checksummed

MAX_NAME_LENGTH = 100
"""Characters of `metadata.name`."""

_BY_NAME: Mapping[str, OAuthProvider] = {name: name for name in PROVIDERS}

ProviderText = Annotated[str, WithJsonSchema({"type": "string", "enum": list(PROVIDERS)})]


class PregenerateUserBody(RequestModel):
    """The account to create a wallet for. Only servers may send this, never a browser."""

    model_config = ConfigDict(alias_generator=None)

    brand_id: BrandId
    oauth_provider: ProviderText
    oauth_user_id: str = Field(
        min_length=1, description="The account's id at the provider, which never changes"
    )
    oauth_username: str | None = Field(
        None, description="Recommended. The account's username, with or without an @"
    )
    metadata: dict[str, Any] | None = Field(
        None,
        description="Stored with the request. A google account needs `email` and `name` here if an "
        "identity vendor holds the wallets",
    )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises MissingFields if a required field is absent or empty, else InvalidFields."""
        missing = [name for name in REQUIRED if body.get(name) in (None, "")]
        if missing:
            raise MissingFields(missing)
        return super().from_json(body)

    def to_request(self, *, is_signed: bool) -> PregenerationRequest:
        """Raises ProviderUnknown and OAuthIdInvalid."""
        return PregenerationRequest(
            brand_id=address_of(self.brand_id),
            account=self._account(_provider(self.oauth_provider)),
            metadata=self.metadata,
            is_signed=is_signed,
        )

    def _account(self, provider: OAuthProvider) -> OAuthAccount:
        check_id(provider, self.oauth_user_id)
        account = OAuthAccount(provider, self.oauth_user_id, self.oauth_username or None)
        return (
            account if provider != "google" else _with_google_profile(account, self.metadata or {})
        )


def _provider(text: str) -> OAuthProvider:
    provider = _BY_NAME.get(text)
    if provider is None:
        raise ProviderUnknown("Invalid OAuth provider", valid_providers=list(PROVIDERS))
    return provider


def _with_google_profile(account: OAuthAccount, metadata: Mapping[str, Any]) -> OAuthAccount:
    """Add e-mail address and name, which Google's API does not have. Ignores invalid values."""
    values = {name: metadata.get(name) for name in ("email", "name")}
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    return replace(
        account,
        email=texts["email"] if _is_email(texts.get("email", "")) else None,
        name=texts["name"] if _is_name(texts.get("name", "")) else None,
    )


def _is_email(text: str) -> bool:
    try:
        email(text)
    except ValueError:
        return False
    return True


def _is_name(text: str) -> bool:
    return len(text) <= MAX_NAME_LENGTH and text.strip() != ""


class PregenerateUserResponse(ResponseModel):
    """The wallet of an account (spec 4.5), the same for every request and every brand."""

    model_config = ConfigDict(alias_generator=None)

    success: Literal[True]
    wallet_address: str
    privy_user_id: str = Field(description="The identity provider's id of the wallet's user")
    oauth_provider: str
    oauth_user_id: str
    created_new: bool = Field(description="True if this request created it")
    message: str
    next_steps: list[str]

    @staticmethod
    def body(account: OAuthAccount, recorded: RecordedPregeneration) -> dict[str, object]:
        kept, name = recorded.kept, TITLES[account.provider]
        state = "A wallet was created for" if recorded.created_new else "A wallet exists for"
        return {
            "success": True,
            "wallet_address": checksummed(kept.wallet),
            "privy_user_id": kept.subject,
            "oauth_provider": account.provider,
            "oauth_user_id": account.user_id,
            "created_new": recorded.created_new,
            "message": f"{state} this {name} account",
            "next_steps": [
                "Store wallet_address with your user: it never changes for this account",
                f"When the user logs in with the same {name} account, the wallet is the user's",
                "Repeat the request at any time: the response has the same wallet",
            ],
        }

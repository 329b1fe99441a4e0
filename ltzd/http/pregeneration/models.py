"""Requests and answers of pregeneration (spec 4.5), as checked, sent and documented.

Here as at the invalidation endpoints names are written with underscores, as the specification
writes them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, RootModel, ValidationError, WithJsonSchema

from ltzd.actions.pregeneration import PregenerationRequest
from ltzd.errors import MissingFields
from ltzd.http.errors import PREGENERATION_REQUIRED, ProviderUnknown
from ltzd.http.event_handler.models import Answered, Sent
from ltzd.http.requests.fields import BrandId, email, invalid_fields
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount, OAuthProvider
from ltzd.rules.oauth.ids import TITLES, check_id
from ltzd.store.users.pregenerations import RecordedPregeneration
from ltzd.values import address_of, checksummed

LONGEST_NAME = 100
"""Characters of `metadata.name`."""

_BY_NAME: Mapping[str, OAuthProvider] = {name: name for name in PROVIDERS}

ProviderText = Annotated[str, WithJsonSchema({"type": "string", "enum": list(PROVIDERS)})]


class PregenerationOrder(Sent):
    """Whose wallet is wanted. For servers: a browser must not ask."""

    model_config = ConfigDict(alias_generator=None)

    brand_id: BrandId
    oauth_provider: ProviderText
    oauth_user_id: str = Field(
        min_length=1, description="The account's id at the provider, which never changes"
    )
    oauth_username: str | None = Field(
        None, description="Recommended; must be the account's user name, with or without an @"
    )
    metadata: dict[str, Any] | None = Field(
        None,
        description="Stored with the request. Where an identity vendor keeps the wallets, a google "
        "account needs `email` and `name` here",
    )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises MissingFields, also for empty text, and InvalidFields with every fault."""
        missing = [name for name in PREGENERATION_REQUIRED if body.get(name) in (None, "")]
        if missing:
            raise MissingFields(missing)
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise invalid_fields(error) from None

    def asked(self) -> PregenerationRequest:
        """Raises ProviderUnknown and OAuthIdInvalid."""
        return PregenerationRequest(
            brand_id=address_of(self.brand_id),
            account=self._account(_provider(self.oauth_provider)),
            metadata=self.metadata,
        )

    def _account(self, provider: OAuthProvider) -> OAuthAccount:
        check_id(provider, self.oauth_user_id)
        account = OAuthAccount(provider, self.oauth_user_id, self.oauth_username or None)
        return account if provider != "google" else _with_google_facts(account, self.metadata or {})


def _provider(text: str) -> OAuthProvider:
    provider = _BY_NAME.get(text)
    if provider is None:
        raise ProviderUnknown("Invalid OAuth provider", valid_providers=list(PROVIDERS))
    return provider


def _with_google_facts(account: OAuthAccount, metadata: Mapping[str, Any]) -> OAuthAccount:
    """What Google does not tell of its accounts; what cannot be true counts as not said."""
    given = {name: metadata.get(name) for name in ("email", "name")}
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
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
    return len(text) <= LONGEST_NAME and text.strip() != ""


class PregeneratedAnswer(Answered):
    """An account's wallet (spec 4.5): the same whenever, and for whichever brand, it is asked."""

    model_config = ConfigDict(alias_generator=None)

    success: Literal[True]
    wallet_address: str
    privy_user_id: str = Field(description="The identity provider's id of the wallet's user")
    oauth_provider: str
    oauth_user_id: str
    created_new: bool = Field(description="Whether this very request made it")
    message: str
    next_steps: list[str]

    @staticmethod
    def body(account: OAuthAccount, recorded: RecordedPregeneration) -> dict[str, object]:
        kept, name = recorded.kept, TITLES[account.provider]
        made = "A wallet was made for" if recorded.created_new else "There is a wallet for"
        return {
            "success": True,
            "wallet_address": checksummed(kept.wallet),
            "privy_user_id": kept.subject,
            "oauth_provider": account.provider,
            "oauth_user_id": account.user_id,
            "created_new": recorded.created_new,
            "message": f"{made} this {name} account",
            "next_steps": [
                "Keep wallet_address beside your user; it never changes for this account",
                f"Have the user log in with the same {name} account: the wallet is his",
                "Ask again with the same account at any time: the answer names the same wallet",
            ],
        }


class _Refused(Answered):
    model_config = ConfigDict(alias_generator=None)

    error: str


class PlainRefusal(_Refused):
    """The text tells all (spec 7.3)."""


class ExplainedRefusal(_Refused):
    """`details` names the field and its rule, or tells what to do."""

    details: str


class MissingRefusal(_Refused):
    """A required field is missing, null or empty."""

    required: list[str] = Field(description="Every required field")


class ProviderRefusal(_Refused):
    """There is no such provider."""

    valid_providers: list[str]


class IdRefusal(_Refused):
    """No account of the provider has an id of this form."""

    details: str
    example: str


class CredentialsRefusal(_Refused):
    """The account is an obvious fake, unknown to its provider, or somebody else's."""

    hint: str
    provider: str


class BadRequestRefusal(
    RootModel[
        MissingRefusal
        | ProviderRefusal
        | IdRefusal
        | CredentialsRefusal
        | ExplainedRefusal
        | PlainRefusal
    ]
):
    """One of MissingRefusal, ProviderRefusal, IdRefusal, CredentialsRefusal,
    ExplainedRefusal and PlainRefusal."""

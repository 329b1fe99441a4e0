"""The section `identity`: the identity provider of users' tokens and wallets, of one of two kinds.

A key of the other kind is reported as unknown.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from ltzd.daemon.settings.section import Section, resolve_secret
from ltzd.daemon.settings.value_types import (
    Algorithms,
    ClaimName,
    ClaimNames,
    IssuerUrl,
    SecretFile,
    Texts,
    WebUrl,
)
from ltzd.providers.identity.client import IdentityPolicy
from ltzd.providers.oidc.policy import OidcPolicy

Kind = Literal["vendor", "oidc"]


class VendorIdentitySettings(Section):
    """A vendor issues the tokens and keeps the wallets."""

    kind: Literal["vendor"] = "vendor"
    base_url: WebUrl
    app_id: Annotated[str, Field(min_length=1)]
    app_secret: Annotated[SecretStr, Field(min_length=1)] | None = None
    app_secret_file: SecretFile | None = None
    issuer: Annotated[str, Field(min_length=1)] = "privy.io"
    """The `iss` claim of the vendor's tokens."""
    signer_id: Annotated[str, Field(min_length=1)] | None = None
    """The id of the key quorum that new wallets get as an additional signer, for ltzd's permits."""
    signer_key: Annotated[SecretStr, Field(min_length=1)] | None = None
    signer_key_file: SecretFile | None = None

    @model_validator(mode="after")
    def _has_one_secret(self) -> Self:
        self.require_exactly_one("app_secret")
        return self

    @model_validator(mode="after")
    def _has_a_whole_signer_or_none(self) -> Self:
        if self.signer_key is not None and self.signer_key_file is not None:
            raise ValueError("give either signer_key or signer_key_file")
        if (self.signer_id is None) != (self.signer_key is None and self.signer_key_file is None):
            raise ValueError("give both signer_id and its key, or neither")
        return self

    def secret(self) -> SecretStr:
        return resolve_secret(self.app_secret, self.app_secret_file)

    def policy(self) -> IdentityPolicy:
        """Raises Misconfigured if a secret's file cannot be read."""
        has_signer = self.signer_id is not None
        return IdentityPolicy(
            base_url=self.base_url,
            app_id=self.app_id,
            app_secret=self.secret().get_secret_value(),
            issuer=self.issuer,
            signer_id=self.signer_id,
            signer_key=resolve_secret(self.signer_key, self.signer_key_file).get_secret_value()
            if has_signer
            else None,
        )

    def urls(self) -> dict[str, str]:
        return {"identity.base_url": self.base_url}


class OidcIdentitySettings(Section):
    """An OpenID Connect issuer issues the tokens, and ltzd keeps the wallets."""

    kind: Literal["oidc"]
    issuer: IssuerUrl
    """The exact `iss` claim; a final slash matters."""
    audience: Texts
    subject_claim: ClaimName = "sub"
    email_claim: ClaimName = "email"
    email_verified_claim: ClaimName = "email_verified"
    account_claims: ClaimNames = Field(default_factory=dict)
    """The claim with the id of the user's account, by OAuth provider."""
    algorithms: Algorithms = ("RS256", "ES256")
    discovery_url: WebUrl | None = None

    def urls(self) -> dict[str, str]:
        given = {"identity.issuer": self.issuer, "identity.discovery_url": self.discovery_url}
        return {name: url for name, url in given.items() if url is not None}

    def policy(self) -> OidcPolicy:
        return OidcPolicy(
            issuer=self.issuer,
            audiences=self.audience,
            subject_claim=self.subject_claim,
            email_claim=self.email_claim,
            email_verified_claim=self.email_verified_claim,
            account_claims=dict(self.account_claims),
            algorithms=self.algorithms,
            discovery_url=self.discovery_url,
        )


class _AnyKind(Section):
    kind: Kind


def _validate_by_kind(value: object) -> object:
    """Validate as the given kind, so that the places of faults do not contain the kind."""
    if isinstance(value, VendorIdentitySettings | OidcIdentitySettings):
        return value
    kind = value.get("kind", "vendor") if isinstance(value, Mapping) else "vendor"
    if _AnyKind.model_validate({"kind": kind}).kind == "oidc":
        return OidcIdentitySettings.model_validate(value)
    return VendorIdentitySettings.model_validate(value)


IdentitySettings = Annotated[
    VendorIdentitySettings | OidcIdentitySettings, BeforeValidator(_validate_by_kind)
]

"""Whose tokens count where an OpenID Connect issuer makes them, and what they vouch for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ltzd.rules.oauth.accounts import OAuthProvider

Algorithm = Literal["RS256", "ES256", "PS256", "EdDSA"]


@dataclass(frozen=True, slots=True)
class OidcPolicy:
    """`issuer` is their exact `iss`. `account_claims` names, by provider, the claims that hold the
    ids of the user's accounts; it may name only claims that the issuer itself has proven.
    `timeout_seconds` bounds a look at both documents, repeats included; `attempt_seconds` one
    request.
    """

    issuer: str
    audiences: tuple[str, ...]
    subject_claim: str = "sub"
    email_claim: str = "email"
    email_verified_claim: str = "email_verified"
    account_claims: Mapping[OAuthProvider, str] = field(default_factory=dict)
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256")
    discovery_url: str | None = None
    timeout_seconds: float = 4.0
    attempt_seconds: float = 1.5
    max_attempts: int = 2
    pause_seconds: float = 0.2

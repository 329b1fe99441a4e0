"""The tokens that are accepted of an OpenID Connect issuer, and what its claims prove."""

from collections.abc import Mapping

import msgspec

from ltzd.providers.jwks import Algorithm
from ltzd.rules.oauth.accounts import OAuthProvider

__all__ = ["Algorithm", "OidcPolicy"]


class OidcPolicy(msgspec.Struct, frozen=True):
    """`issuer` is the tokens' exact `iss`.

    `account_claims` names, by provider, the claims that hold the ids of the user's accounts; it may
    name only claims that the issuer itself has proven. `timeout_seconds` bounds a read of both
    published documents, repeats included; `attempt_seconds` bounds one request.
    """

    issuer: str
    audiences: tuple[str, ...]
    subject_claim: str = "sub"
    email_claim: str = "email"
    email_verified_claim: str = "email_verified"
    account_claims: Mapping[OAuthProvider, str] = msgspec.field(default_factory=dict)
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256")
    discovery_url: str | None = None
    timeout_seconds: float = 4.0
    attempt_seconds: float = 1.5
    max_attempts: int = 2
    pause_seconds: float = 0.2

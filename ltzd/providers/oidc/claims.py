"""What the claims of a token say, once its signature is known to be the issuer's; without I/O.

A token vouches for its subject always, for an e-mail address only where the issuer says `true` of
having verified it, and for accounts by the claims that the settings name. What is malformed there
vouches for nothing; a malformed subject, issuer, audience or time refuses the token.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ltzd import telemetry
from ltzd.errors import Unauthorized
from ltzd.providers.email_addresses import proven_address
from ltzd.providers.identity.tokens import CLOCK_SKEW_SECONDS, TokenUser
from ltzd.providers.oidc.policy import OidcPolicy
from ltzd.rules.oauth.accounts import OAuthAccount

Claims = Mapping[str, object]
Reason = Literal["malformed", "unknown_key", "bad_signature", "wrong_claims", "expired"]

RESERVED_SUBJECT_PREFIX = "ltzd:"
"""Subjects that begin so are those we give ourselves, and no issuer's."""

LONGEST_NAME = 255
_MOST_AUDIENCES = 100


@dataclass(frozen=True, slots=True)
class OidcUser(TokenUser):
    """All of it is the issuer's word. `email` is in lower case."""

    email: str | None = None


def refused(reason: Reason) -> Unauthorized:
    """Raised `from None`: the libraries' errors quote what they were given."""
    telemetry.TOKEN_CHECKS.labels(reason).inc()
    return Unauthorized("Invalid or expired token")


def user_in(claims: Claims, policy: OidcPolicy, now: float) -> OidcUser:
    """Raises Unauthorized. `now` is in Unix seconds."""
    if claims.get("iss") != policy.issuer or not _is_for_us(claims.get("aud"), policy):
        raise refused("wrong_claims")
    _check_times(claims, now)
    subject = claims.get(policy.subject_claim)
    if (
        not isinstance(subject, str)
        or not _is_name(subject)
        or subject.startswith(RESERVED_SUBJECT_PREFIX)
    ):
        raise refused("wrong_claims")
    return OidcUser(
        subject, wallets=None, accounts=_accounts(claims, policy), email=_email(claims, policy)
    )


def _is_for_us(audience: object, policy: OidcPolicy) -> bool:
    named = [audience] if isinstance(audience, str) else audience
    if not isinstance(named, list) or len(named) > _MOST_AUDIENCES:
        return False
    return all(isinstance(each, str) for each in named) and not set(named).isdisjoint(
        policy.audiences
    )


def _check_times(claims: Claims, now: float) -> None:
    ends, made = _seconds(claims, "exp"), _seconds(claims, "iat")
    begins = _seconds(claims, "nbf") if "nbf" in claims else made
    if now >= ends:
        raise refused("expired")
    if max(made, begins) > now + CLOCK_SKEW_SECONDS:
        raise refused("wrong_claims")


def _seconds(claims: Claims, name: str) -> float:
    value = claims.get(name)
    # A boolean is an int to Python.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise refused("wrong_claims")
    return value


def _is_name(text: str) -> bool:
    """Nothing in it that nobody sees: it lies in the database and in lists."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable()


def _email(claims: Claims, policy: OidcPolicy) -> str | None:
    """Strictly `true`: some issuers put the text "false" there."""
    is_verified = claims.get(policy.email_verified_claim) is True
    return proven_address(claims.get(policy.email_claim)) if is_verified else None


def _accounts(claims: Claims, policy: OidcPolicy) -> tuple[OAuthAccount, ...]:
    found = []
    for provider, name in policy.account_claims.items():
        value = claims.get(name)
        number = isinstance(value, int) and not isinstance(value, bool) and value > 0
        text = str(value) if number else value
        if isinstance(text, str) and _is_name(text):
            found.append(OAuthAccount(provider, text))
    return tuple(found)

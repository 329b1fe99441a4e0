"""Reads the user from a verified token's claims, without I/O.

A token proves its subject always, an e-mail address only if the issuer says `true` of having
verified it, and accounts by the claims that the settings name. A malformed address or account
proves nothing; a malformed subject, issuer, audience or time refuses the token.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ltzd.providers.email_addresses import proven_address
from ltzd.providers.identity.tokens import TokenUser
from ltzd.providers.oidc.policy import OidcPolicy
from ltzd.providers.token_checks import CLOCK_SKEW_SECONDS, refused
from ltzd.rules.oauth.accounts import OAuthAccount

Claims = Mapping[str, object]

RESERVED_SUBJECT_PREFIX = "ltzd:"
"""Subjects that begin so are given by ltzd itself; a token with one is refused."""

MAX_NAME_LENGTH = 255
_MOST_SECONDS = 2**53
"""The largest Unix time: larger integers are no exact floats, and much larger ones no floats."""
_MAX_AUDIENCES = 100


@dataclass(frozen=True, slots=True)
class OidcUser(TokenUser):
    """All fields are the issuer's statements. `email` is in lower case."""

    email: str | None = None


def user_in(claims: Claims, policy: OidcPolicy, now: float) -> OidcUser:
    """Raises Unauthorized. `now` is in Unix seconds."""
    if claims.get("iss") != policy.issuer or not _is_for_us(claims.get("aud"), policy):
        raise refused("wrong_claims")
    _check_times(claims, now)
    subject = claims.get(policy.subject_claim)
    if not isinstance(subject, str) or not _is_name(subject):
        raise refused("wrong_claims")
    if subject.startswith(RESERVED_SUBJECT_PREFIX):
        raise refused("wrong_claims")
    return OidcUser(
        subject, wallets=None, accounts=_accounts(claims, policy), email=_email(claims, policy)
    )


def _is_for_us(audience: object, policy: OidcPolicy) -> bool:
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or len(audiences) > _MAX_AUDIENCES:
        return False
    if not all(isinstance(each, str) for each in audiences):
        return False
    return not set(audiences).isdisjoint(policy.audiences)


def _check_times(claims: Claims, now: float) -> None:
    expires_at, issued_at = _unix_seconds(claims, "exp"), _unix_seconds(claims, "iat")
    begins_at = _unix_seconds(claims, "nbf") if "nbf" in claims else issued_at
    if now >= expires_at:
        raise refused("expired")
    if max(issued_at, begins_at) > now + CLOCK_SKEW_SECONDS:
        raise refused("wrong_claims")


def _unix_seconds(claims: Claims, name: str) -> float:
    value = claims.get(name)
    # A boolean is an int to Python.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused("wrong_claims")
    if not abs(value) < _MOST_SECONDS:  # Neither does NaN fulfil this.
        raise refused("wrong_claims")
    return value


def _is_name(text: str) -> bool:
    """No invisible characters: the name is stored and shown in lists."""
    return 0 < len(text) <= MAX_NAME_LENGTH and text.isprintable()


def _email(claims: Claims, policy: OidcPolicy) -> str | None:
    """Strictly `true`: some issuers send the text "false"."""
    is_verified = claims.get(policy.email_verified_claim) is True
    return proven_address(claims.get(policy.email_claim)) if is_verified else None


def _accounts(claims: Claims, policy: OidcPolicy) -> tuple[OAuthAccount, ...]:
    accounts = []
    for provider, claim in policy.account_claims.items():
        value = claims.get(claim)
        is_number = isinstance(value, int) and not isinstance(value, bool) and value > 0
        account_id = str(value) if is_number else value
        if isinstance(account_id, str) and _is_name(account_id):
            accounts.append(OAuthAccount(provider, account_id))
    return tuple(accounts)

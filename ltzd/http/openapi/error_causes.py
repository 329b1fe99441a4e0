"""When each error occurs, in a phrase for the OpenAPI document, and an example of it.

An operation may replace an example by its own: see `Operation.error_examples`.
"""

from collections.abc import Mapping

import msgspec

from ltzd import errors
from ltzd.actions.site_plugin.members import no_email
from ltzd.errors import LtzdError
from ltzd.http.errors import BodyTooLarge, BodyUnreadable, RequestError
from ltzd.rules.oauth.ids import OAuthIdInvalid

_WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
_EVENT_ID = "6f1c2a3e-0b1d-4d52-9a55-0c8f4c3f0b1a"
_CONTRACT = "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB"


class ErrorCause(msgspec.Struct, frozen=True):
    condition: str
    example: LtzdError


def condition_of(error: LtzdError) -> str:
    """When the error occurs."""
    if isinstance(error, RequestError):
        return error.condition.format(**error.details)
    return ERROR_CAUSES[type(error)].condition


def default_example(kind: type[LtzdError], body_limit: int) -> LtzdError:
    if issubclass(kind, BodyTooLarge):
        return BodyTooLarge(body_limit)
    if issubclass(kind, BodyUnreadable):
        return BodyUnreadable("Content-Type must be application/json")
    return ERROR_CAUSES[kind].example


_CAUSES = (
    ErrorCause("a required field is missing", errors.MissingFields(["brandId"])),
    ErrorCause("a field is invalid", errors.InvalidFields(["brandId: is required"])),
    ErrorCause(
        "the brand has no event of this type",
        errors.EventNotConfigured(
            "eventType: referral is not configured for this brand",
            errors=["eventType: referral is not configured for this brand"],
        ),
    ),
    ErrorCause(
        "the reward is larger than the brand or the mint limit allows",
        errors.RewardTooLarge(
            "Reward too large", errors=["metadata.amount: earns more LTZ than allowed"]
        ),
    ),
    ErrorCause(
        "the id does not have the form of the provider's ids",
        OAuthIdInvalid("discord", "Discord ids have 17 to 20 digits", "175928847299117063"),
    ),
    ErrorCause(
        "the checkout session or the event cannot be processed, for the reason given",
        errors.PaymentRefused("Payment not completed"),
    ),
    ErrorCause(
        "the account gets no wallet: it is fake, unknown to its provider or another's",
        errors.AccountRefused(
            "Invalid OAuth credentials", hint="No such account", provider="discord"
        ),
    ),
    ErrorCause(
        "the credential is missing, invalid or expired",
        errors.Unauthorized("Authorization must be given once, as Bearer and a token"),
    ),
    ErrorCause(
        "the signature is missing, invalid or too old, or its nonce was used before",
        errors.SignatureRefused("The request is not signed by this brand"),
    ),
    ErrorCause(
        "no user is logged in at the site",
        errors.NotLoggedIn("You are not logged in at this site."),
    ),
    ErrorCause("the brand is unknown", errors.BrandUnknown("Unknown brand")),
    ErrorCause(
        "the brand has switched its events off",
        errors.AutomationDisabled("Automation is disabled for this brand"),
    ),
    ErrorCause(
        "the domain is not the brand's",
        errors.DomainUnauthorized(
            "Domain other.example is not authorized for this brand, "
            "which is configured for shop.example",
            domain="other.example",
            configuredDomains=["shop.example"],
        ),
    ),
    ErrorCause(
        "the channel is not one of the event's",
        errors.ChannelNotAllowed("Channel not allowed", allowedChannels=["general"]),
    ),
    ErrorCause(
        "the contract is not whitelisted",
        errors.ContractNotWhitelisted(
            "Contract not whitelisted", contract=_WALLET, allowed=[_CONTRACT]
        ),
    ),
    ErrorCause(
        "the request is not allowed, for the reason given",
        errors.ValidationFailed("Origin not allowed"),
    ),
    ErrorCause("the resource does not exist", errors.NotFound("Not found")),
    ErrorCause(
        "the collection does not exist",
        errors.CollectionNotFound("Collection not found", collectionId=7),
    ),
    ErrorCause(
        "the token does not exist in the collection",
        errors.TokenNotFound("Token not found in the collection", collectionId=7, tokenId="1"),
    ),
    ErrorCause(
        "the event was recorded before: details.existingEventId names it",
        errors.DuplicateEvent("Duplicate event", existingEventId=_EVENT_ID),
    ),
    ErrorCause(
        "the user has reached the collection's claim limit",
        errors.ClaimLimitReached(
            "Claim limit reached: the collection allows no more claims to this user",
            collectionId=7,
            currentClaims=1,
            maxPerUser=1,
        ),
    ),
    ErrorCause(
        "another wallet holds the token",
        errors.HolderChanged(
            "The token is no longer held by userAddress", tokenId="1", holder=_WALLET
        ),
    ),
    ErrorCause(
        "the token has too few charges left",
        errors.NoChargesRemaining(
            "The token does not have enough charges left",
            tokenId="1",
            chargesRemaining=0,
            requested=1,
        ),
    ),
    ErrorCause(
        "the idempotency key was used with another request",
        errors.IdempotencyKeyReused("This idempotency key was used with another request"),
    ),
    ErrorCause(
        "the cooldown is active",
        errors.CooldownActive(
            "Cooldown active",
            message="This event can be claimed again in 3600 seconds",
            reason="cooldown",
            cooldownSeconds=3_600,
            previousReward=_EVENT_ID,
        ),
    ),
    ErrorCause(
        "the maximum number of claims is reached",
        errors.MaxClaimsReached(
            "Max claims reached",
            message="This event was claimed 1 times by this user; the maximum is 1",
            reason="max_claims_reached",
            totalClaims=1,
            maxClaims=1,
        ),
    ),
    ErrorCause(
        "the brand's daily budget is spent",
        errors.BudgetExhausted(
            "Budget exhausted",
            message="Today's budget is spent; the brand's next day begins in 3600 seconds",
            reason="budget_exhausted",
            retryAfterSeconds=3_600,
        ),
    ),
    ErrorCause(
        "a rate limit is exceeded",
        errors.RateLimited("Rate limit exceeded", limit=100, retryAfterSeconds=42),
    ),
    ErrorCause(
        "too many log-ins from the address have failed at this host",
        errors.LoginRateLimited("Too many log-ins have failed", limit=60, retryAfterSeconds=42),
    ),
    ErrorCause(
        "too many wrong codes were typed",
        errors.TooManyAttempts(
            "You have typed too many wrong codes. Please try again in 10 minutes with a new code.",
            limit=5,
            retryAfterSeconds=600,
        ),
    ),
    ErrorCause(
        "the service is busy, and the brand or the caller has its share",
        errors.ShareExceeded(
            "Too many requests",
            message="The service is busy, and these requests are more than an equal share; "
            "try again in 3 s",
            reason="busy",
            retryAfterSeconds=3,
        ),
    ),
    ErrorCause("the service is busy", errors.Overloaded("", retryAfterSeconds=3)),
    ErrorCause(
        "the transaction reverts, or failed on chain",
        errors.TransactionFailed("Transaction failed", reason="execution reverted"),
    ),
    ErrorCause(
        "the Host is not the site of any brand",
        errors.SiteUnknown("No loyalty programme is configured for this site."),
    ),
    ErrorCause("the user's account has no usable e-mail address", no_email()),
    ErrorCause(
        "the check-in is refused, for the reason given",
        errors.CheckInRefused("Today's rewards have all been given out."),
    ),
    ErrorCause(
        "the redemption is refused, for the reason given",
        errors.RedemptionRefused("This perk is sold out."),
    ),
    ErrorCause(
        "the milestone is not reached, or was claimed before",
        errors.MilestoneRefused("You have claimed this milestone already."),
    ),
    ErrorCause(
        "the code is wrong, expired or used",
        errors.LinkRefused(
            "This code is wrong, or has expired, or was used. Please get a new one."
        ),
    ),
    ErrorCause("the identity provider is unavailable", errors.IdentityUnavailable("")),
    ErrorCause(
        "the OAuth provider cannot be asked about the account", errors.AccountLookupUnavailable("")
    ),
    ErrorCause("the payment provider is unavailable", errors.PaymentsUnavailable("")),
    ErrorCause(
        "the mint is queued and has no hash yet: repeat the request", errors.MintPending("")
    ),
    ErrorCause(
        "the transaction is signed and no node has accepted it yet (`RELAY_PENDING`): repeat the "
        "request with the same idempotency key",
        errors.RelayPending(""),
    ),
    ErrorCause("no DNS resolver answers", errors.DnsUnavailable("")),
    ErrorCause("too many requests wait for this host's site", errors.HostSiteBusy("")),
    ErrorCause("the site does not say who is logged in", errors.HostSiteUnavailable("")),
    ErrorCause("the database is unavailable", errors.DatabaseUnavailable("")),
    ErrorCause("no blockchain node answers", errors.NodeUnavailable("")),
    ErrorCause(
        "the database was lost while the call was stored or waited for, so that a transaction may "
        "or may not be sent (`OUTCOME_UNKNOWN`): repeat the request with the same idempotency key",
        errors.OutcomeUnknown(""),
    ),
    ErrorCause("a service is unavailable", errors.Unavailable("")),
    ErrorCause("an internal error", errors.Broken("")),
)
ERROR_CAUSES: Mapping[type[LtzdError], ErrorCause] = {
    type(cause.example): cause for cause in _CAUSES
}

"""When each error occurs, in a phrase for the OpenAPI document, and an example of it.

An operation may replace an example by its own: see `Operation.error_examples`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ltzd.actions.site_plugin.members import NoEmailAddress, no_email
from ltzd.errors import (
    AccountLookupUnavailable,
    AccountRefused,
    AutomationDisabled,
    BrandUnknown,
    Broken,
    BudgetExhausted,
    ChannelNotAllowed,
    CheckInRefused,
    ClaimLimitReached,
    CollectionNotFound,
    ContractNotWhitelisted,
    CooldownActive,
    DatabaseUnavailable,
    DnsUnavailable,
    DomainUnauthorized,
    DuplicateEvent,
    EventNotConfigured,
    HolderChanged,
    HostSiteBusy,
    HostSiteUnavailable,
    IdempotencyKeyReused,
    IdentityUnavailable,
    InvalidFields,
    LinkRefused,
    LoginRateLimited,
    LtzdError,
    MaxClaimsReached,
    MilestoneRefused,
    MintPending,
    MissingFields,
    NoChargesRemaining,
    NodeUnavailable,
    NotFound,
    NotLoggedIn,
    OutcomeUnknown,
    Overloaded,
    PaymentRefused,
    PaymentsUnavailable,
    RateLimited,
    RedemptionRefused,
    RelayPending,
    RewardTooLarge,
    ShareExceeded,
    SignatureRefused,
    SiteUnknown,
    TokenNotFound,
    TooManyAttempts,
    TransactionFailed,
    Unauthorized,
    Unavailable,
    ValidationFailed,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable, RequestError
from ltzd.rules.oauth.ids import OAuthIdInvalid

_WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
_EVENT_ID = "6f1c2a3e-0b1d-4d52-9a55-0c8f4c3f0b1a"
_CONTRACT = "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB"


@dataclass(frozen=True, slots=True)
class ErrorCause:
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


ERROR_CAUSES: Mapping[type[LtzdError], ErrorCause] = {
    MissingFields: ErrorCause("a required field is missing", MissingFields(["brandId"])),
    InvalidFields: ErrorCause("a field is invalid", InvalidFields(["brandId: is required"])),
    EventNotConfigured: ErrorCause(
        "the brand has no event of this type",
        EventNotConfigured(
            "eventType: referral is not configured for this brand",
            errors=["eventType: referral is not configured for this brand"],
        ),
    ),
    RewardTooLarge: ErrorCause(
        "the reward is larger than the brand or the mint limit allows",
        RewardTooLarge("Reward too large", errors=["metadata.amount: earns more LTZ than allowed"]),
    ),
    OAuthIdInvalid: ErrorCause(
        "the id does not have the form of the provider's ids",
        OAuthIdInvalid("discord", "Discord ids have 17 to 20 digits", "175928847299117063"),
    ),
    PaymentRefused: ErrorCause(
        "the checkout session or the event cannot be processed, for the reason given",
        PaymentRefused("Payment not completed"),
    ),
    AccountRefused: ErrorCause(
        "the account gets no wallet: it is fake, unknown to its provider or another's",
        AccountRefused("Invalid OAuth credentials", hint="No such account", provider="discord"),
    ),
    Unauthorized: ErrorCause(
        "the credential is missing, invalid or expired",
        Unauthorized("Authorization must be given once, as Bearer and a token"),
    ),
    SignatureRefused: ErrorCause(
        "the signature is missing, invalid or too old, or its nonce was used before",
        SignatureRefused("The request is not signed by this brand"),
    ),
    NotLoggedIn: ErrorCause(
        "no user is logged in at the site", NotLoggedIn("You are not logged in at this site.")
    ),
    BrandUnknown: ErrorCause("the brand is unknown", BrandUnknown("Unknown brand")),
    AutomationDisabled: ErrorCause(
        "the brand has switched its events off",
        AutomationDisabled("Automation is disabled for this brand"),
    ),
    DomainUnauthorized: ErrorCause(
        "the domain is not the brand's",
        DomainUnauthorized(
            "Domain other.example is not authorized for this brand, "
            "which is configured for shop.example",
            domain="other.example",
            configuredDomains=["shop.example"],
        ),
    ),
    ChannelNotAllowed: ErrorCause(
        "the channel is not one of the event's",
        ChannelNotAllowed("Channel not allowed", allowedChannels=["general"]),
    ),
    ContractNotWhitelisted: ErrorCause(
        "the contract is not whitelisted",
        ContractNotWhitelisted("Contract not whitelisted", contract=_WALLET, allowed=[_CONTRACT]),
    ),
    ValidationFailed: ErrorCause(
        "the request is not allowed, for the reason given", ValidationFailed("Origin not allowed")
    ),
    NotFound: ErrorCause("the resource does not exist", NotFound("Not found")),
    CollectionNotFound: ErrorCause(
        "the collection does not exist",
        CollectionNotFound("Collection not found", collectionId=7),
    ),
    TokenNotFound: ErrorCause(
        "the token does not exist in the collection",
        TokenNotFound("Token not found in the collection", collectionId=7, tokenId="1"),
    ),
    DuplicateEvent: ErrorCause(
        "the event was recorded before: details.existingEventId names it",
        DuplicateEvent("Duplicate event", existingEventId=_EVENT_ID),
    ),
    ClaimLimitReached: ErrorCause(
        "the user has reached the collection's claim limit",
        ClaimLimitReached(
            "Claim limit reached: the collection allows no more claims to this user",
            collectionId=7,
            currentClaims=1,
            maxPerUser=1,
        ),
    ),
    HolderChanged: ErrorCause(
        "another wallet holds the token",
        HolderChanged("The token is no longer held by userAddress", tokenId="1", holder=_WALLET),
    ),
    NoChargesRemaining: ErrorCause(
        "the token has too few charges left",
        NoChargesRemaining(
            "The token does not have enough charges left",
            tokenId="1",
            chargesRemaining=0,
            requested=1,
        ),
    ),
    IdempotencyKeyReused: ErrorCause(
        "the idempotency key was used with another request",
        IdempotencyKeyReused("This idempotency key was used with another request"),
    ),
    CooldownActive: ErrorCause(
        "the cooldown is active",
        CooldownActive(
            "Cooldown active",
            message="This event can be claimed again in 3600 seconds",
            reason="cooldown",
            cooldownSeconds=3_600,
            previousReward=_EVENT_ID,
        ),
    ),
    MaxClaimsReached: ErrorCause(
        "the maximum number of claims is reached",
        MaxClaimsReached(
            "Max claims reached",
            message="This event was claimed 1 times by this user; the maximum is 1",
            reason="max_claims_reached",
            totalClaims=1,
            maxClaims=1,
        ),
    ),
    BudgetExhausted: ErrorCause(
        "the brand's daily budget is spent",
        BudgetExhausted(
            "Budget exhausted",
            message="Today's budget is spent; the brand's next day begins in 3600 seconds",
            reason="budget_exhausted",
            retryAfterSeconds=3_600,
        ),
    ),
    RateLimited: ErrorCause(
        "a rate limit is exceeded",
        RateLimited("Rate limit exceeded", limit=100, retryAfterSeconds=42),
    ),
    LoginRateLimited: ErrorCause(
        "too many log-ins from the address have failed at this host",
        LoginRateLimited("Too many log-ins have failed", limit=60, retryAfterSeconds=42),
    ),
    TooManyAttempts: ErrorCause(
        "too many wrong codes were typed",
        TooManyAttempts(
            "You have typed too many wrong codes. Please try again in 10 minutes with a new code.",
            limit=5,
            retryAfterSeconds=600,
        ),
    ),
    ShareExceeded: ErrorCause(
        "the service is busy, and the brand or the caller has its share",
        ShareExceeded(
            "Too many requests",
            message="The service is busy, and these requests are more than an equal share; "
            "try again in 3 s",
            reason="busy",
            retryAfterSeconds=3,
        ),
    ),
    Overloaded: ErrorCause("the service is busy", Overloaded("", retryAfterSeconds=3)),
    TransactionFailed: ErrorCause(
        "the transaction reverts, or failed on chain",
        TransactionFailed("Transaction failed", reason="execution reverted"),
    ),
    SiteUnknown: ErrorCause(
        "the Host is not the site of any brand",
        SiteUnknown("No loyalty programme is configured for this site."),
    ),
    NoEmailAddress: ErrorCause("the user's account has no usable e-mail address", no_email()),
    CheckInRefused: ErrorCause(
        "the check-in is refused, for the reason given",
        CheckInRefused("Today's rewards have all been given out."),
    ),
    RedemptionRefused: ErrorCause(
        "the redemption is refused, for the reason given",
        RedemptionRefused("This perk is sold out."),
    ),
    MilestoneRefused: ErrorCause(
        "the milestone is not reached, or was claimed before",
        MilestoneRefused("You have claimed this milestone already."),
    ),
    LinkRefused: ErrorCause(
        "the code is wrong, expired or used",
        LinkRefused("This code is wrong, or has expired, or was used. Please get a new one."),
    ),
    IdentityUnavailable: ErrorCause(
        "the identity provider is unavailable", IdentityUnavailable("")
    ),
    AccountLookupUnavailable: ErrorCause(
        "the OAuth provider cannot be asked about the account", AccountLookupUnavailable("")
    ),
    PaymentsUnavailable: ErrorCause("the payment provider is unavailable", PaymentsUnavailable("")),
    MintPending: ErrorCause(
        "the mint is queued and has no hash yet: repeat the request", MintPending("")
    ),
    RelayPending: ErrorCause(
        "the transaction is signed and no node has accepted it yet (`RELAY_PENDING`): repeat the "
        "request with the same idempotency key",
        RelayPending(""),
    ),
    DnsUnavailable: ErrorCause("no DNS resolver answers", DnsUnavailable("")),
    HostSiteBusy: ErrorCause("too many requests wait for this host's site", HostSiteBusy("")),
    HostSiteUnavailable: ErrorCause(
        "the site does not say who is logged in", HostSiteUnavailable("")
    ),
    DatabaseUnavailable: ErrorCause("the database is unavailable", DatabaseUnavailable("")),
    NodeUnavailable: ErrorCause("no blockchain node answers", NodeUnavailable("")),
    OutcomeUnknown: ErrorCause(
        "the database was lost while the call was stored or waited for, so that a transaction may "
        "or may not be sent (`OUTCOME_UNKNOWN`): repeat the request with the same idempotency key",
        OutcomeUnknown(""),
    ),
    Unavailable: ErrorCause("a service is unavailable", Unavailable("")),
    Broken: ErrorCause("an internal error", Broken("")),
}

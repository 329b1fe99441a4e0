"""Every way ltzd says no, by who must act.

LtzdError
├── Refused               the caller: change the request
│   ├── InvalidFields     `errors` lists every fault as "field: reason"
│   ├── BrandUnknown, AutomationDisabled, DomainUnauthorized, ChannelNotAllowed
│   ├── EventNotConfigured
│   ├── DuplicateEvent, CooldownActive, MaxClaimsReached
│   ├── RewardTooLarge, BudgetExhausted, RateLimited     the brand's own limits
│   │   └── LoginRateLimited     of failed log-ins at a site
│   ├── Unauthorized
│   │   └── SignatureRefused
│   ├── MissingFields         `missing` names them
│   ├── ContractNotWhitelisted, ValidationFailed         what may not be relayed
│   ├── ClaimLimitReached, IdempotencyKeyReused
│   ├── TransactionFailed     the call reverts, or did; `reason` says why
│   ├── HolderChanged, NoChargesRemaining
│   ├── AccountRefused    an account at an OAuth provider that gets no wallet; `hint` says why
│   ├── PaymentRefused    a checkout session that cannot be minted, and why
│   ├── SiteUnknown, NotLoggedIn                         a site's request
│   ├── CheckInRefused, RedemptionRefused, MilestoneRefused, LinkRefused     told to its user
│   ├── TooManyAttempts      somebody may be guessing; `retryAfterSeconds`
│   └── NotFound
│       └── CollectionNotFound, TokenNotFound
├── Unavailable           nobody: the same request may succeed later
│   ├── NodeUnavailable
│   ├── IdentityUnavailable, AccountLookupUnavailable
│   ├── PaymentsUnavailable, MintPending, DnsUnavailable
│   ├── RelayPending          signed, and no node has taken it: the same request joins it later
│   ├── HostSiteUnavailable
│   │   └── HostSiteBusy      too many requests wait for this one host's site
│   ├── DatabaseUnavailable
│   ├── OutcomeUnknown    a transaction that may or may not be mined: look before you repeat
│   └── LaneLost          another process took the lane or the chain: stand by
├── Misconfigured         the operator of this machine: the text says what to do
│   └── FileRejected       `faults` lists every fault with its place
└── Broken                us: an invariant failed, so the daemon stops
    └── IllegalTransition

Nothing here knows HTTP; `http/errors.py` maps these to statuses. `details` is shown to callers, so
it never holds secrets or e-mail addresses.
"""


class LtzdError(Exception):
    """`details` are facts for the caller, JSON values only."""

    def __init__(self, message: str, /, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class Refused(LtzdError):
    pass


class InvalidFields(Refused):
    def __init__(self, errors: list[str]) -> None:
        super().__init__("Validation failed", errors=errors)


class BrandUnknown(Refused):
    pass


class AutomationDisabled(Refused):
    pass


class DomainUnauthorized(Refused):
    pass


class ChannelNotAllowed(Refused):
    pass


class EventNotConfigured(Refused):
    pass


class DuplicateEvent(Refused):
    pass


class CooldownActive(Refused):
    pass


class MaxClaimsReached(Refused):
    pass


class RewardTooLarge(Refused):
    pass


class BudgetExhausted(Refused):
    """`retryAfterSeconds` tells when the brand's next day begins."""


class RateLimited(Refused):
    """Details: `limit`, how many a window allows, and `retryAfterSeconds` until it ends."""


class LoginRateLimited(RateLimited):
    """An address failed to log in at a site too often. Details as above."""


class Unauthorized(Refused):
    """A credential is missing, malformed, wrong, too old or used up."""


class SignatureRefused(Unauthorized):
    pass


class AccountRefused(Refused):
    """An account at an OAuth provider that no wallet is made for; `hint` says why.

    Its id or username cannot be real, the provider does not know it, or it belongs elsewhere.
    """


class PaymentRefused(Refused):
    """Of a checkout session: not found, not paid, or its metadata contradict each other."""


class SiteUnknown(Refused):
    """The Host header names no brand's site."""


class NotLoggedIn(Refused):
    """The host site knows of no log-in with what came."""


class CheckInRefused(Refused):
    """The message is for the site's user, and so are those of the next three."""


class RedemptionRefused(Refused):
    pass


class MilestoneRefused(Refused):
    pass


class LinkRefused(Refused):
    """No code of this site's, or a member who may not have the code's wallet."""


class TooManyAttempts(Refused):
    """Of somebody who may be guessing. Details: `retryAfterSeconds`."""


class NotFound(Refused):
    pass


class CollectionNotFound(NotFound):
    pass


class TokenNotFound(NotFound):
    pass


class HolderChanged(Refused):
    """Details: `holder`, who holds it now."""


class NoChargesRemaining(Refused):
    """Details: `chargesRemaining`, less what is under way, and `requested`."""


class MissingFields(Refused):
    def __init__(self, missing: list[str]) -> None:
        super().__init__(f"Missing required fields: {', '.join(missing)}", missing=missing)


class ContractNotWhitelisted(Refused):
    """Details: `contract`, and `allowed`, the contracts that are."""


class ValidationFailed(Refused):
    """The caller may not have this relayed; the message names the rule."""


class ClaimLimitReached(Refused):
    """Details: `collectionId`, `currentClaims` (those in flight too), `maxPerUser`."""


class IdempotencyKeyReused(Refused):
    """The key came with another body before."""


class TransactionFailed(Refused):
    """Details: `reason`; `transactionHash` and `blockNumber` if it cost gas."""


class Unavailable(LtzdError):
    pass


class NodeUnavailable(Unavailable):
    """No answer, or none that means anything: the outcome of the call is unknown."""


class IdentityUnavailable(Unavailable):
    pass


class AccountLookupUnavailable(Unavailable):
    """An OAuth provider gave no usable answer about an account; `reason` is fit for a log."""

    def __init__(self, reason: str) -> None:
        super().__init__("The OAuth provider gave no usable answer", reason=reason)
        self.reason = reason


class PaymentsUnavailable(Unavailable):
    """The payment provider does not answer, or is not configured."""


class MintPending(Unavailable):
    """The payment is recorded and will be minted; no hash is known yet."""


class RelayPending(Unavailable):
    """The transaction is signed and no node has taken it yet, so that no hash can be told."""


class DnsUnavailable(Unavailable):
    """No resolver told whether the record is there."""


class HostSiteUnavailable(Unavailable):
    """The site whose user it would be does not say who he is."""


class HostSiteRefused(HostSiteUnavailable):
    """It, or what stands before it, refuses the request and says nothing of its user."""


class HostSiteBusy(HostSiteUnavailable):
    """So many requests wait for this host's site that another one must not."""


class DatabaseUnavailable(Unavailable):
    pass


class OutcomeUnknown(Unavailable):
    """The message names the transaction."""


class LaneLost(Unavailable):
    pass


class Misconfigured(LtzdError):
    """The message is one plain sentence for a terminal, saying what to do."""


class FileRejected(Misconfigured):
    """A file that a person wrote is wrong in these places, a line of text for each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Broken(LtzdError):
    pass


class IllegalTransition(Broken):
    pass

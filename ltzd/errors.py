"""Every error that ltzd raises, ordered by who must act.

LtzdError
├── Refused               the caller must change the request
│   ├── InvalidFields         `errors` lists every fault as "field: reason"
│   ├── BrandUnknown, AutomationDisabled, DomainUnauthorized, ChannelNotAllowed
│   ├── EventNotConfigured
│   ├── DuplicateEvent, CooldownActive, MaxClaimsReached
│   ├── RewardTooLarge, BudgetExhausted, RateLimited     the brand's limits and the callers'
│   │   ├── LoginRateLimited  too many failed log-ins at a site
│   │   └── TooManyAttempts   too many wrong codes
│   ├── Unauthorized
│   │   └── SignatureRefused
│   ├── MissingFields         `missing` names them
│   ├── ContractNotWhitelisted, ValidationFailed         a call that is not relayed
│   ├── ClaimLimitReached, IdempotencyKeyReused
│   ├── TransactionFailed     the call would revert or has reverted; `reason`
│   ├── HolderChanged, NoChargesRemaining
│   ├── AccountRefused        no wallet is made for this OAuth account; `hint` says why
│   ├── PaymentRefused        no mint is made for this checkout session
│   ├── SiteUnknown, NotLoggedIn                         a request to a site's API
│   ├── CheckInRefused, RedemptionRefused, MilestoneRefused, LinkRefused     for the site's user
│   ├── ShareExceeded         more than the caller's share of a busy process; `retryAfterSeconds`
│   └── NotFound
│       └── CollectionNotFound, TokenNotFound
├── Unavailable           nobody; the same request may succeed later
│   ├── Overloaded            the process has more work than it can do; `retryAfterSeconds`
│   ├── NodeUnavailable
│   ├── IdentityUnavailable, AccountLookupUnavailable
│   ├── PaymentsUnavailable, MintPending, DnsUnavailable
│   ├── RelayPending          signed but not yet accepted by a node; a repeated request joins it
│   ├── HostSiteUnavailable
│   │   ├── HostSiteRefused   the site, or its proxy, rejects ltzd's request
│   │   └── HostSiteBusy      too many requests already wait for this host's site
│   ├── DatabaseUnavailable
│   │   └── NoConnection      no connection was free in time: nothing was asked of the database
│   ├── SignerUnavailable     the signer that holds a wallet's key did not sign
│   ├── OutcomeUnknown        a transaction may or may not be mined: check before you repeat it
│   ├── IndexMoved            blocks that were compared are not indexed any more: compare again
│   └── LaneLost              another process took over the lane or the chain: stand by
├── Misconfigured         the operator of this machine; the message says what to do
│   └── FileRejected          `faults` lists every fault with its place
└── Broken                ltzd's developers: an invariant failed; the loop or lane begins again
    ├── IllegalTransition
    ├── ImpossibleFact        the chain contradicts the index; the indexer looks for the cause
    └── IndexStopped          the indexer stops until a person has acted; the message says how

This module does not depend on HTTP; `http/errors.py` maps the classes to statuses. Callers see
`details`, so they never hold secrets or e-mail addresses.
"""

from typing import Literal, TypeAlias

NodeFaultKind: TypeAlias = Literal[
    "refused_connection",
    "timeout",
    "http_status",
    "malformed",
    "oversized",
    "rate_limited",
    "busy",
    "behind",
    "none_usable",
    "other",
]
"""Why a node gave no valid answer.

`oversized` is an answer that is longer, or holds more values, than any honest answer to the call.
`rate_limited` also stands for a request that ltzd held back because the node had refused others.
`busy` is a request for which ltzd had no connection to the node left.
`behind` is a node that lacks the block of the request.
`none_usable` is no node's fault: there was none left to ask.
"""


class LtzdError(Exception):
    """`details` are JSON values for the caller."""

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
    """Details: `retryAfterSeconds` until the brand's next day begins."""


class RateLimited(Refused):
    """Details: `limit`, the requests of one window, and `retryAfterSeconds` until it ends.

    `reset_at` is the window's end in Unix seconds, or None where only the whole seconds are known.
    """

    def __init__(self, message: str, /, reset_at: float | None = None, **details: object) -> None:
        super().__init__(message, **details)
        self.reset_at = reset_at


class LoginRateLimited(RateLimited):
    """Too many log-ins from one address failed at a site. Details like RateLimited."""


class TooManyAttempts(RateLimited):
    """Too many wrong codes, which may be guesses. Details like RateLimited."""


class Unauthorized(Refused):
    """A credential is missing, malformed, wrong, expired or already used."""


class SignatureRefused(Unauthorized):
    pass


class AccountRefused(Refused):
    """No wallet is made for an account at an OAuth provider; `hint` says why.

    Its id or username is malformed, unknown to the provider, or belongs to another account.
    """


class PaymentRefused(Refused):
    """A checkout session is not found, not paid, or has contradictory metadata."""


class SiteUnknown(Refused):
    """The Host header is not the domain of any brand's site."""


class NotLoggedIn(Refused):
    """The host site does not recognise the request's cookie, nonce or password as a log-in."""


class CheckInRefused(Refused):
    """The message is for the site's user, as in the next three classes."""


class RedemptionRefused(Refused):
    pass


class MilestoneRefused(Refused):
    pass


class LinkRefused(Refused):
    """The code is not one of this site, or its wallet cannot be linked to this member."""


class ShareExceeded(Refused):
    """The caller's brand, or the caller, asks for more than its share of a process that is busy.

    Details: `message`, `reason`, and `retryAfterSeconds`.
    """


class NotFound(Refused):
    pass


class CollectionNotFound(NotFound):
    pass


class TokenNotFound(NotFound):
    pass


class HolderChanged(Refused):
    """The token has another holder. Details: `holder`, its current holder."""


class NoChargesRemaining(Refused):
    """Details: `requested` and `chargesRemaining`, which excludes pending redemptions."""


class MissingFields(Refused):
    def __init__(self, missing: list[str]) -> None:
        super().__init__(f"Missing required fields: {', '.join(missing)}", missing=missing)


class ContractNotWhitelisted(Refused):
    """Details: `contract`, and `allowed`, the contracts that can be called."""


class ValidationFailed(Refused):
    """A rule forbids relaying this call; the message names the rule."""


class ClaimLimitReached(Refused):
    """Details: `collectionId`, `currentClaims` (including those in flight), `maxPerUser`."""


class IdempotencyKeyReused(Refused):
    """The idempotency key was used before with another body."""


class TransactionFailed(Refused):
    """Details: `reason`; also `transactionHash` and `blockNumber` if it was mined."""


class Unavailable(LtzdError):
    pass


class Overloaded(Unavailable):
    """The process has more requests than it can serve in time. Details: `retryAfterSeconds`."""


class NodeUnavailable(Unavailable):
    """The node did not answer, or not with a valid answer: the call's outcome is unknown.

    `kind` is for metrics and for the choice of another node; no caller sees it.
    """

    def __init__(self, message: str, /, kind: NodeFaultKind = "other", **details: object) -> None:
        super().__init__(message, **details)
        self.kind: NodeFaultKind = kind


class IdentityUnavailable(Unavailable):
    pass


class AccountLookupUnavailable(Unavailable):
    """An OAuth provider gave no usable answer about an account; `reason` is fit for a log."""

    def __init__(self, reason: str) -> None:
        super().__init__("The OAuth provider gave no usable answer", reason=reason)
        self.reason = reason


class PaymentsUnavailable(Unavailable):
    """The payment provider does not answer or is not configured."""


class MintPending(Unavailable):
    """The payment is recorded and will be minted; its transaction hash is not known yet."""


class RelayPending(Unavailable):
    """The transaction is signed, but no node has accepted it, so its hash is not final."""


class DnsUnavailable(Unavailable):
    """No resolver answered whether the record exists."""


class HostSiteUnavailable(Unavailable):
    """The host site does not answer who the user is."""


class HostSiteRefused(HostSiteUnavailable):
    """The host site, or a proxy before it, rejects the request without naming a user."""


class HostSiteBusy(HostSiteUnavailable):
    """The limit of requests that wait for this host's site is reached."""


class DatabaseUnavailable(Unavailable):
    pass


class NoConnection(DatabaseUnavailable):
    pass


class SignerUnavailable(Unavailable):
    """The signer that holds a wallet's key did not sign; nothing was stored or published."""


class OutcomeUnknown(Unavailable):
    """The message names the transaction, or says why nobody knows whether there will be one."""


class LaneLost(Unavailable):
    pass


class IndexMoved(Unavailable):
    pass


class Misconfigured(LtzdError):
    """The message is a sentence for a terminal that says what to do."""


class FileRejected(Misconfigured):
    """A file or a command's options have faults; `faults` has a line of text for each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Broken(LtzdError):
    pass


class IllegalTransition(Broken):
    pass


class ImpossibleFact(Broken):
    """A fact that cannot follow from the indexed facts, such as a negative balance."""


class IndexStopped(Broken):
    """The message is a sentence, followed by the command that a person runs."""

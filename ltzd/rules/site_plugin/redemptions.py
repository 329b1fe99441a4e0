"""Checks before a perk is redeemed at a brand's site, their sentences, and confirmation codes.

Amounts are in LTZ's smallest unit. Every check raises RedemptionRefused with a sentence for the
site's user, who does not know about contracts.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from ltzd.errors import ClaimLimitReached, RateLimited, RedemptionRefused, Refused, ValidationFailed
from ltzd.rules.amounts import ltz_of
from ltzd.rules.relayer.gas_budgets import IDENTITY_REASON, TOTAL_REASON
from ltzd.values import Address

ALPHABET: Final = "23456789ABCDEFGHJKMNPQRTUWXY"
"""Without 0 and O, 1, I and L, which look alike, and without S, V and Z, which look like 5, U and 2
in handwriting and sound like F, B and C."""
CODE_LENGTH: Final = 12
"""57.7 bits."""
CODE_ENTROPY_BYTES: Final = 16
"""Enough bytes that all codes are almost equally likely."""

_GROUP = 4

UNKNOWN: Final = "This site offers no such perk."
_NOT_OFFERED = "This perk is no longer offered."
_SOLD_OUT = "This perk is sold out."
_NEEDS_SIGNATURE = (
    "This perk has to be approved with your own wallet, and cannot be redeemed from this site."
)
_LIMIT_REACHED = "You have redeemed this perk as often as it allows."
_PRICE_MOVED = "The price of this perk has just changed. Please look at it and try again."
_NO_FUNDS = "Your wallet does not hold enough LTZ for this perk."
_CONDITIONS = "You do not meet the conditions of this perk yet."
_NO_ACCOUNT = (
    "This perk is for members of the chat community. Please link your account there first."
)
_ACCOUNT_IN_USE = "Your account of the chat community has got this perk for another wallet already."
_BY_ACCOUNT: Final[Mapping[str, str]] = {
    "account_not_linked": _NO_ACCOUNT,
    "account_in_use": _ACCOUNT_IN_USE,
}
_NO_MORE_TODAY = "Your wallet has no transactions left for today. Please try again tomorrow."
_NOBODY_TODAY = "Perks can be redeemed again tomorrow: today's transactions have all been used."
_FAILED = "The perk could not be redeemed. No LTZ were taken."
EXTERNAL_WALLET: Final = (
    "Your wallet signs with its own key alone. Please redeem this perk with your wallet."
)
OVERTAKEN: Final = "Another transaction of this wallet came first."
ABANDONED_UNSENT: Final = "It was left before anything was sent."

_BY_REVERT: Final[Mapping[str, str]] = {
    "UnknownCollection": _NOT_OFFERED,
    "UnknownItem": _NOT_OFFERED,
    "CollectionInactive": _NOT_OFFERED,
    "ItemInactive": _NOT_OFFERED,
    "SoldOut": _SOLD_OUT,
    "OutOfStock": _SOLD_OUT,
    "SignatureRequired": _NEEDS_SIGNATURE,
    "ClaimLimitReached": _LIMIT_REACHED,
    "PriceAboveMax": _PRICE_MOVED,
    "TotalAboveMax": _PRICE_MOVED,
    "ERC20InsufficientBalance": _NO_FUNDS,
}


class Offer(msgspec.Struct, frozen=True):
    """A collection or item as on chain. `left` and `max_per_user` are None if there is no limit."""

    brand: Address
    price: int
    is_active: bool
    left: int | None
    max_per_user: int | None = None
    needs_signature: bool = False


class RedemptionFacts(msgspec.Struct, frozen=True):
    """The state of an offer and a wallet at one block.

    `claims` counts the wallet's claims of the offer. `permit_nonce` is its next permit's nonce,
    which the index does not know. `block_time` is the block's time in Unix seconds.
    """

    offer: Offer
    balance: int
    permit_nonce: int | None
    claims: int = 0
    block_time: int = 0

    def differs_from(self, earlier: "RedemptionFacts") -> bool:
        """Whether anything but the block has changed; an unknown nonce counts as unchanged."""
        nonces = {self.permit_nonce, earlier.permit_nonce} - {None}
        return len(nonces) > 1 or (self.offer, self.balance, self.claims) != (
            earlier.offer,
            earlier.balance,
            earlier.claims,
        )


def code_of(entropy: bytes) -> str:
    """A confirmation code, XXXX-XXXX-XXXX, from random bytes."""
    if len(entropy) < CODE_ENTROPY_BYTES:
        raise ValueError(f"a code is made of {CODE_ENTROPY_BYTES} random bytes")
    number, letters = int.from_bytes(entropy, "big"), []
    for _ in range(CODE_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[digit])
    groups = range(0, CODE_LENGTH, _GROUP)
    return "-".join("".join(letters[start : start + _GROUP]) for start in groups)


def is_available(offer: Offer) -> bool:
    """Whether the offer is open at all; `check` decides for a wallet."""
    return _fault_of(offer) is None


def check(facts: RedemptionFacts, brand: Address) -> None:
    offer = facts.offer
    fault = _NOT_OFFERED if offer.brand != brand else _fault_of(offer)
    if fault is not None:
        raise RedemptionRefused(fault)
    if offer.max_per_user is not None and facts.claims >= offer.max_per_user:
        raise RedemptionRefused(_LIMIT_REACHED)
    if facts.balance < offer.price:
        raise RedemptionRefused(
            f"This perk costs {format_ltz(offer.price)}, "
            f"but your wallet holds {format_ltz(facts.balance)}."
        )


def check_price(offer: Offer, price: int) -> None:
    """Raises RedemptionRefused unless the price is still that of the redemption's row."""
    if offer.price != price:
        raise RedemptionRefused(_PRICE_MOVED)


def check_cost(price: int, max_cost: int | None) -> None:
    """`max_cost` is the price that the member has agreed to, or None if the caller names none."""
    if max_cost is not None and price > max_cost:
        raise RedemptionRefused(f"The price is now {format_ltz(price)}.")


def refusal_sentence(refusal: Refused) -> str:
    """The sentence for a person, for a refusal that was made for a program."""
    match refusal:
        case RedemptionRefused():
            return refusal.message
        case ClaimLimitReached():
            return _LIMIT_REACHED
        case RateLimited():
            return _too_many(refusal.details)
        case ValidationFailed() if refusal.details.get("reason") == TOTAL_REASON:
            return _NOBODY_TODAY
        case ValidationFailed() if "constraint" in refusal.details:
            return _BY_ACCOUNT.get(str(refusal.details.get("reason")), _CONDITIONS)
    return revert_sentence(str(refusal.details.get("reason", "")))


def revert_sentence(reason: str) -> str:
    """`reason` has the form of chain/contracts/reverts.py: `SoldOut(id: 1)`."""
    return _BY_REVERT.get(reason.partition("(")[0], _FAILED)


def is_gas_too_dear(refusal: Refused) -> bool:
    """Whether gas is too expensive now: a temporary cause that the user cannot change."""
    return isinstance(refusal, ValidationFailed) and "maxGwei" in refusal.details


def format_ltz(units: int) -> str:
    """The exact amount as `12.5 LTZ`."""
    return f"{ltz_of(units):f} LTZ"


def _fault_of(offer: Offer) -> str | None:
    if not offer.is_active:
        return _NOT_OFFERED
    if offer.needs_signature:
        return _NEEDS_SIGNATURE
    return _SOLD_OUT if offer.left == 0 else None


def _too_many(details: Mapping[str, object]) -> str:
    if details.get("reason") == IDENTITY_REASON:
        return _NO_MORE_TODAY
    seconds = details.get("retryAfterSeconds")
    minutes = math.ceil(seconds / 60) if isinstance(seconds, int) else 60
    plural = "" if minutes == 1 else "s"
    return (
        "Your wallet has made too many transactions this hour. "
        f"Please try again in {minutes} minute{plural}."
    )

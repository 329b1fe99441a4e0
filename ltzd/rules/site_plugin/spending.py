"""How much of a wallet a site session may spend, and which part of it pays for a perk.

A site's members may have typed anybody's e-mail address, so a session spends from three pots, in
this order (choices.md, Site):

    earned  what this very member earned at the site, into this wallet
    given   what else the brand gave or sold to the wallet, if the address is believed
    linked  what else the wallet holds, within the daily allowance of its owner's link

The first two pots overlap, and so do the pots of several members of one wallet: together they never
hold more than the brand gave or sold, less what sessions of its sites have spent of it.

Amounts are LTZ's smallest unit. The caller counts only mined rewards and redemptions that have not
failed, and decides under the wallet's lock: nothing here protects against two decisions at once.
"""

from dataclasses import dataclass

from ltzd.errors import RedemptionRefused
from ltzd.rules.site_plugin.redemptions import in_ltz


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the link lets its member spend on one day, and what was charged to it that day."""

    per_day: int
    charged: int

    @property
    def left(self) -> int:
        return max(0, self.per_day - self.charged)


@dataclass(frozen=True, slots=True)
class SpendingRecord:
    """What is on record about a member, his wallet and the brand.

    `earned` is a part of `given_in_all`. `spent_of_earned` is this member's alone; `spent_in_all`
    is what all sessions of the brand's sites spent from the first two pots.
    """

    earned: int = 0
    given_in_all: int = 0
    spent_of_earned: int = 0
    spent_in_all: int = 0
    allowance: Allowance | None = None


@dataclass(frozen=True, slots=True)
class PotAmounts:
    """How much of a price, or of what may be spent, comes from which pot."""

    earned: int = 0
    given: int = 0
    linked: int = 0

    @property
    def total(self) -> int:
        return self.earned + self.given + self.linked


@dataclass(frozen=True, slots=True)
class AddressFacts:
    """What is known about the e-mail address under which a member has his wallet.

    `is_confirmed` is the site's word for this member; None if the site says nothing. `is_proven`:
    an identity token has proven the address to ltzd. `leads_to_wallet`: the session's wallet is the
    address's own, and not one that a link has given.
    """

    is_confirmed: bool | None
    is_proven: bool
    leads_to_wallet: bool


def is_believed(address: AddressFacts, *, verified_emails: bool) -> bool:
    """Whether the site's word opens the second pot. `verified_emails` is the operator's word for
    the whole site.

    The owner of a proven address can link the member himself, so no site's word counts there.
    """
    if address.is_proven or not address.leads_to_wallet:
        return False
    return verified_emails if address.is_confirmed is None else address.is_confirmed


def pots(ledger: SpendingRecord, *, believed: bool, balance: int) -> PotAmounts:
    """What may be spent now, pot by pot; in all never more than `balance`."""
    of_brand = min(max(0, ledger.given_in_all - ledger.spent_in_all), balance)
    earned = min(max(0, ledger.earned - ledger.spent_of_earned), of_brand)
    given = of_brand - earned if believed else 0
    allowed = 0 if ledger.allowance is None else ledger.allowance.left
    return PotAmounts(earned, given, min(allowed, balance - earned - given))


def payment_of(price: int, allowed: PotAmounts) -> PotAmounts | None:
    """Which pots pay the price; None if they do not hold it."""
    earned = min(price, allowed.earned)
    given = min(price - earned, allowed.given)
    linked = price - earned - given
    return None if linked > allowed.linked else PotAmounts(earned, given, linked)


def pay(price: int, allowed: PotAmounts, *, is_linked: bool) -> PotAmounts:
    """Which pots pay the price. Raises RedemptionRefused with a sentence for the member."""
    payment = payment_of(price, allowed)
    if payment is not None:
        return payment
    if is_linked:
        raise RedemptionRefused(
            f"This perk costs {in_ltz(price)}, but your link lets this site spend only "
            f"{in_ltz(allowed.total)} now. Please try again tomorrow, or link your wallet again "
            "with a higher daily allowance."
        )
    raise RedemptionRefused(
        f"This perk costs {in_ltz(price)}, but this site may spend only {in_ltz(allowed.total)} "
        "of your wallet. Link your wallet to use more of it."
    )

"""How much of a wallet a site session may spend, and which part of it pays for a perk.

A member may have typed another person's e-mail address, so a session spends from three pots, in
this order (docs/site.md, The member's wallet):

    earned  LTZ that this member earned at the site, into this wallet
    given   other LTZ that the brand gave or sold to the wallet, if the address is believed
    linked  other LTZ of the wallet, within the daily allowance of its owner's link

The first two pots overlap, and so do the pots of several members of one wallet. Together they never
hold more than the brand gave or sold, less what sessions of its sites have spent of it.

Amounts are in LTZ's smallest unit. The caller counts only mined rewards and redemptions that have
not failed, and must hold the wallet's lock, since nothing here prevents two decisions at once.
"""

import msgspec

from ltzd.errors import RedemptionRefused
from ltzd.rules.site_plugin.redemptions import format_ltz


class Allowance(msgspec.Struct, frozen=True):
    """The daily limit of a link, and the amount that was charged to it on one day."""

    per_day: int
    charged: int

    @property
    def left(self) -> int:
        return max(0, self.per_day - self.charged)


class SpendingRecord(msgspec.Struct, frozen=True):
    """The recorded amounts of a member, the member's wallet and the brand.

    `earned` is a part of `given_in_all`. `spent_of_earned` is this member's alone; `spent_in_all`
    is what all sessions of the brand's sites spent from the first two pots.
    """

    earned: int = 0
    given_in_all: int = 0
    spent_of_earned: int = 0
    spent_in_all: int = 0
    allowance: Allowance | None = None


class PotAmounts(msgspec.Struct, frozen=True):
    """An amount of each pot: of a price, or of the spendable LTZ."""

    earned: int = 0
    given: int = 0
    linked: int = 0

    @property
    def total(self) -> int:
        return self.earned + self.given + self.linked


class AddressFacts(msgspec.Struct, frozen=True):
    """Facts about the e-mail address by which a member has a wallet.

    `is_confirmed`: the site states so for this member; None if it states nothing. `is_proven`: an
    identity token has proven the address to ltzd. `leads_to_wallet`: the session's wallet is the
    address's own, and does not come from a link.
    """

    is_confirmed: bool | None
    is_proven: bool
    leads_to_wallet: bool


def is_address_trusted(address: AddressFacts, *, verified_emails: bool) -> bool:
    """Whether the site's statement opens the second pot.

    `verified_emails` is the operator's statement for the whole site. The owner of a proven address
    can link the member, so a site's statement does not count there.
    """
    if address.is_proven or not address.leads_to_wallet:
        return False
    return verified_emails if address.is_confirmed is None else address.is_confirmed


def available_pots(record: SpendingRecord, *, believed: bool, balance: int) -> PotAmounts:
    """The spendable amount of each pot; their total is at most `balance`."""
    of_brand = min(max(0, record.given_in_all - record.spent_in_all), balance)
    earned = min(max(0, record.earned - record.spent_of_earned), of_brand)
    given = of_brand - earned if believed else 0
    allowed = 0 if record.allowance is None else record.allowance.left
    return PotAmounts(earned, given, min(allowed, balance - earned - given))


def payment_of(price: int, allowed: PotAmounts) -> PotAmounts | None:
    """The amounts that pay the price, or None if the pots do not cover it."""
    earned = min(price, allowed.earned)
    given = min(price - earned, allowed.given)
    linked = price - earned - given
    return None if linked > allowed.linked else PotAmounts(earned, given, linked)


def pay(price: int, allowed: PotAmounts, *, is_linked: bool) -> PotAmounts:
    """The amounts that pay the price. Raises RedemptionRefused with a sentence for the member."""
    payment = payment_of(price, allowed)
    if payment is not None:
        return payment
    if is_linked:
        raise RedemptionRefused(
            f"This perk costs {format_ltz(price)}, but your link lets this site spend only "
            f"{format_ltz(allowed.total)} now. Please try again tomorrow, or link your wallet "
            "again with a higher daily allowance."
        )
    raise RedemptionRefused(
        f"This perk costs {format_ltz(price)}, but this site may spend only "
        f"{format_ltz(allowed.total)} of your wallet. Link your wallet to use more of it."
    )

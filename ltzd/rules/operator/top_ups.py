"""Decides without I/O which of the operator's wallets the treasury fills next.

A top-up has a fixed amount, and goes to an active wallet whose balance is below the floor of its
kind, and only while the treasury's top-ups of this UTC day stay within their bound. A wallet gets
none while its last one is not final, nor if a key that ltzd does not hold has signed with it: what
a thief can take is bounded. Units: wei.
"""

from collections.abc import Mapping, Sequence

import msgspec

from ltzd.values import Address


class TopUpPolicy(msgspec.Struct, frozen=True):
    """`floors` are by kind of wallet; a kind without a floor gets no top-ups."""

    top_up_wei: int
    max_wei_per_day: int
    floors: Mapping[str, int] = msgspec.field(default_factory=dict)
    check_seconds: float = 10.0
    """The shortest time between two reads of the balances."""


class OperatorBalance(msgspec.Struct, frozen=True):
    """A wallet that may get a top-up, by the answers of several nodes that count.

    `used` is the number of nonces that the wallet has used on chain; `given_out` is the number that
    the database has given out. `has_open`: a top-up of the wallet is not final. `has_displaced`: a
    transaction that ltzd did not sign has taken one of its nonces.
    """

    wallet: Address
    kind: str
    balance: int
    used: int
    given_out: int
    has_open: bool = False
    has_displaced: bool = False

    @property
    def is_in_foreign_hands(self) -> bool:
        return self.has_displaced or self.used > self.given_out


def is_below_floor(balance: OperatorBalance, policy: TopUpPolicy) -> bool:
    return balance.balance < policy.floors.get(balance.kind, 0)


def next_top_up(
    balances: Sequence[OperatorBalance], spent_today: int, policy: TopUpPolicy
) -> Address | None:
    """The wallet that is the furthest below its floor, or None if no wallet may get a top-up."""
    if not is_within_day(spent_today, policy):
        return None
    due = [
        each
        for each in balances
        if is_below_floor(each, policy) and not each.has_open and not each.is_in_foreign_hands
    ]
    return min(due, key=lambda each: _share(each, policy)).wallet if due else None


def is_within_day(spent_today: int, policy: TopUpPolicy) -> bool:
    """Whether another top-up stays within the bound of the day."""
    return spent_today + policy.top_up_wei <= policy.max_wei_per_day


def _share(balance: OperatorBalance, policy: TopUpPolicy) -> tuple[int, bytes]:
    """The balance in millionths of the floor; the address decides between equals."""
    return balance.balance * 10**6 // policy.floors[balance.kind], balance.wallet

"""Daily gas budgets: what the relays of one identity, the redemptions of charges of one brand, and
all of them together may cost the operator.

An identity is the subject of a user's tokens, with all of its wallets. A relay in flight counts
with the most it can cost, a mined one with its cost. A day is a UTC day. Amounts are in wei; a
budget of 0 sets no limit.
"""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from ltzd.errors import BudgetExhausted, RateLimited, ValidationFailed
from ltzd.rules.relayer.allowed_calls import MAX_GAS_LIMIT
from ltzd.rules.relayer.limits import RELAYS_AN_HOUR
from ltzd.values import ETHER, Address, hex_of

IDENTITY_REASON = "gas_budget_exhausted"
BRAND_REASON = "brand_gas_budget_exhausted"
TOTAL_REASON = "total_gas_budget_exhausted"

FAR = 1_000
"""The total budget is far from spent while a thousand times the requested amount is left."""


class GasBudgets(msgspec.Struct, frozen=True):
    identity_wei: int = 0
    total_wei: int = 0
    brand_wei: int = 0

    @property
    def limit_relays(self) -> bool:
        return bool(self.identity_wei or self.total_wei)

    @property
    def limit_redemptions(self) -> bool:
        return bool(self.brand_wei or self.total_wei)


NO_BUDGETS = GasBudgets()


class GasSpent(msgspec.Struct, frozen=True):
    """Today's spending; a brand's is under its `brand_account`. `now` is the database's time."""

    now: datetime
    by_identity: Mapping[str, int]
    total_wei: int


def brand_account(brand: Address) -> str:
    """Return what stands for the brand among the identities; no user's subject is like it."""
    return f"brand {hex_of(brand)}"


class GasLedger:
    """Counts relays against their budgets, one after the other."""

    def __init__(self, budgets: GasBudgets, spent: GasSpent) -> None:
        self._budgets = budgets
        self._now = spent.now
        self._by_identity = dict(spent.by_identity)
        self._total_wei = spent.total_wei

    def check(self, identity: str | None) -> None:
        """Raise what `admit` would raise for the cheapest possible relay."""
        self._check(identity, 1)

    def admit(self, identity: str | None, max_cost_wei: int) -> None:
        """Count the relay.

        Raises RateLimited if the identity's budget does not cover it, and ValidationFailed if the
        total budget does not. Without an identity only the total budget is checked.
        """
        self._check(identity, max_cost_wei)
        if identity is not None:
            self._by_identity[identity] = self._by_identity.get(identity, 0) + max_cost_wei
        self._total_wei += max_cost_wei

    def check_redemption(self, brand: Address, max_cost_wei: int) -> None:
        """Raise BudgetExhausted if the brand's budget does not cover this redemption of charges,
        and ValidationFailed if the total budget does not.
        """
        brand_wei = self._by_identity.get(brand_account(brand), 0) + max_cost_wei
        if _is_over(brand_wei, self._budgets.brand_wei):
            raise brand_exhausted(seconds_to_midnight(self._now))
        self._check_total(max_cost_wei)

    def _check(self, identity: str | None, wei: int) -> None:
        if identity is not None:
            identity_wei = self._by_identity.get(identity, 0) + wei
            if _is_over(identity_wei, self._budgets.identity_wei):
                raise identity_exhausted(seconds_to_midnight(self._now))
        self._check_total(wei)

    def _check_total(self, wei: int) -> None:
        if _is_over(self._total_wei + wei, self._budgets.total_wei):
            raise total_exhausted(seconds_to_midnight(self._now))


def is_far_from_spent(budgets: GasBudgets, spent: GasSpent, asked_wei: int) -> bool:
    """Return whether a writer may ignore the uncommitted relays of concurrent writers.

    Each writer adds at most a thousandth of what is left, and fewer than a thousand write at once.
    """
    return budgets.total_wei == 0 or asked_wei * FAR <= budgets.total_wei - spent.total_wei


def identity_exhausted(seconds: int) -> RateLimited:
    return RateLimited(
        "The gas budget of this user is spent for today",
        limit=RELAYS_AN_HOUR,
        reason=IDENTITY_REASON,
        retryAfterSeconds=seconds,
    )


def brand_exhausted(seconds: int) -> BudgetExhausted:
    return BudgetExhausted(
        "The gas budget for this brand's redemptions is spent for today: try again tomorrow",
        reason=BRAND_REASON,
        retryAfterSeconds=seconds,
    )


def total_exhausted(seconds: int) -> ValidationFailed:
    return ValidationFailed(
        "The operator's gas budget for today is spent: try again tomorrow",
        reason=TOTAL_REASON,
        retryAfterSeconds=seconds,
    )


def seconds_to_midnight(now: datetime) -> int:
    """`now` is in UTC."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return math.ceil((midnight - now).total_seconds())


def warnings_of(budgets: GasBudgets, max_fee_wei: int) -> list[str]:
    """Return a warning for each budget that is 0, with what that may cost."""
    worst_relay = MAX_GAS_LIMIT * max_fee_wei
    warnings = []
    if budgets.identity_wei == 0:
        wei_a_day = 24 * RELAYS_AN_HOUR * worst_relay
        warnings.append(
            "relay.gas_budget_wei_per_day is 0: each wallet of an identity may cost up to "
            f"{_in_ether(wei_a_day)} a day ({RELAYS_AN_HOUR} relays an hour of "
            f"{MAX_GAS_LIMIT:,} gas at relay fees up to operator.max_fee_gwei)."
        )
    if budgets.total_wei == 0:
        warnings.append(
            "relay.total_gas_budget_wei_per_day is 0: all relays of a day together may cost "
            f"whatever the relay wallet holds, each up to {_in_ether(worst_relay)}."
        )
    elif budgets.brand_wei == 0:
        warnings.append(
            "relay.brand_gas_budget_wei_per_day is 0: one brand's redemptions may spend the whole "
            f"total budget of {_in_ether(budgets.total_wei)} a day, which everybody's relays need."
        )
    return warnings


def _is_over(wei: int, budget_wei: int) -> bool:
    return budget_wei != 0 and wei > budget_wei


def _in_ether(wei: int) -> str:
    return f"{wei / ETHER:g} ether"

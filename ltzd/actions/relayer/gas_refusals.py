"""Counts the relays and redemptions that are refused because a daily gas budget is spent."""

from ltzd import telemetry
from ltzd.errors import LtzdError
from ltzd.rules.relayer.gas_budgets import BRAND_REASON, IDENTITY_REASON, TOTAL_REASON

_BUDGETS = {IDENTITY_REASON: "identity", BRAND_REASON: "brand", TOTAL_REASON: "total"}


def count_gas_refusal(error: LtzdError) -> None:
    """Errors for other reasons are not counted."""
    budget = _BUDGETS.get(str(error.details.get("reason")))
    if budget is not None:
        telemetry.GAS_REFUSALS.labels(budget).inc()

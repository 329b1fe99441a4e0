"""Counts refusals of relays and redemptions because a day's gas budget was spent."""

from ltzd import telemetry
from ltzd.errors import LtzdError
from ltzd.rules.relayer.gas_budgets import IDENTITY_REASON, TOTAL_REASON

_BUDGETS = {IDENTITY_REASON: "identity", TOTAL_REASON: "total"}


def count_gas_refusal(error: LtzdError) -> None:
    """Nothing for an error of another kind."""
    budget = _BUDGETS.get(str(error.details.get("reason")))
    if budget is not None:
        telemetry.GAS_REFUSALS.labels(budget).inc()

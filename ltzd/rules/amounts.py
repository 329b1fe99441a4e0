"""Converts amounts of LTZ between decimal text and the smallest unit, exactly."""

import re
from decimal import Decimal

from ltzd.values import LTZ, LtzUnits

DECIMALS = 18

_AMOUNT = re.compile(r"(?P<whole>[0-9]{1,78})(\.(?P<fraction>[0-9]{1,78}))?")


def units_of(text: str) -> LtzUnits:
    """The units of `12` or `12.5` LTZ. Raises ValueError with the reason.

    Only plain digits are accepted, so 1e3, 1,000 and NaN are refused.
    """
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError("must be an amount of LTZ in digits, such as 12 or 12.5")
    fraction = (match["fraction"] or "").rstrip("0")
    if len(fraction) > DECIMALS:
        raise ValueError(f"must have at most {DECIMALS} decimals")
    return LtzUnits(int(match["whole"]) * LTZ + int(fraction.ljust(DECIMALS, "0")))


def ltz_of(units: int) -> Decimal:
    """LTZ with as many decimals as are needed."""
    # From text: arithmetic on a Decimal would round to its context's 28 digits.
    text = f"{units // LTZ}.{units % LTZ:0{DECIMALS}d}"
    return Decimal(text.rstrip("0").rstrip("."))

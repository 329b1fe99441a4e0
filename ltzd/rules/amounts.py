"""Amounts of LTZ as people write them and as contracts count them, exact in both directions."""

import re
from decimal import Decimal

from ltzd.values import LTZ, LtzUnits

DECIMALS = 18

_AMOUNT = re.compile(r"(?P<whole>[0-9]{1,78})(\.(?P<fraction>[0-9]{1,78}))?")


def units_of(text: str) -> LtzUnits:
    """The units of `12` or `12.5` LTZ. Raises ValueError with the reason.

    Only plain digits: what 1e3, 1,000 or NaN would mean is left to no parser.
    """
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError("must be an amount of LTZ in digits, such as 12 or 12.5")
    fraction = (found["fraction"] or "").rstrip("0")
    if len(fraction) > DECIMALS:
        raise ValueError(f"must have at most {DECIMALS} decimals")
    return LtzUnits(int(found["whole"]) * LTZ + int(fraction.ljust(DECIMALS, "0")))


def ltz_of(units: int) -> Decimal:
    """Whole LTZ with as many decimals as it takes."""
    # From text: arithmetic on a Decimal would round to its context's 28 digits.
    text = f"{units // LTZ}.{units % LTZ:0{DECIMALS}d}"
    return Decimal(text.rstrip("0").rstrip("."))

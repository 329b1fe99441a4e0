"""JSON from outside, decoded without trusting its depth.

eth-account raises the interpreter's recursion limit to 100,000 when it is imported, and above some
30,000 levels a decoder written in C overflows its stack and ends the process.
"""

import math

import msgspec

# Far more than any message of the outside services has, far less than the stack holds.
_MAX_BRACKETS = 5_000


class InvalidJsonError(ValueError):
    """The body is not JSON, or is nested more deeply than any true message."""


def decode_json(body: bytes) -> object:
    """Return the JSON value in `body`. Raises InvalidJsonError."""
    if body.count(b"[") + body.count(b"{") > _MAX_BRACKETS:
        raise InvalidJsonError("too many brackets")
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidJsonError("no JSON") from error
    return value


def finite_number(value: object) -> float | None:
    """Read a number or its text; returns None for any other value, infinity and NaN."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None

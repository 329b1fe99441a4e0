"""Codes by which a wallet's owner links a member of a brand's site, and the limit of attempts.

The caller draws the randomness and stores the codes.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from ltzd.errors import TooManyAttempts

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32, without I, L, O and U. I and L are read as 1, O as 0."""
CODE_LENGTH: Final = 8
"""40 bits."""
CODE_ENTROPY_BYTES: Final = 5
CODE_LIFE: Final = timedelta(minutes=10)
MOST_OPEN_CODES: Final = 5
"""For each owner, over all sites."""
LINK_LIFE: Final = timedelta(days=180)
DEFAULT_ALLOWANCE: Final = 500
MOST_ALLOWANCE: Final = 1_000_000
"""Whole LTZ a day."""
MOST_WRONG_CODES: Final = 5
WRONG_CODES_WINDOW: Final = timedelta(minutes=10)
"""For each member of a site, from the first wrong code on."""

_READ_AS = str.maketrans("ILO", "110", " -_\t")
_BITS = 5
_LONGEST_TYPED = 100
_ONE_SECOND = timedelta(seconds=1)


class CodeAttempts(msgspec.Struct, frozen=True):
    """The number of wrong codes that a member has typed since `since`."""

    wrong: int = 0
    since: datetime | None = None


def code_of(entropy: bytes) -> str:
    """Raises ValueError unless `entropy` has CODE_ENTROPY_BYTES bytes."""
    if len(entropy) != CODE_ENTROPY_BYTES:
        raise ValueError(f"a code is made of {CODE_ENTROPY_BYTES} random bytes")
    number = int.from_bytes(entropy, "big")
    shifts = range(_BITS * (CODE_LENGTH - 1), -1, -_BITS)
    return "".join(ALPHABET[number >> shift & 0x1F] for shift in shifts)


def normalized_code(text: str) -> str:
    """The code in its normal form: in upper case, without spaces and hyphens, I and L as 1, O as 0.

    Returns an empty text if the text cannot be a code.
    """
    code = text[:_LONGEST_TYPED].upper().translate(_READ_AS)
    return code if len(code) == CODE_LENGTH and set(code) <= set(ALPHABET) else ""


def check_attempts(attempts: CodeAttempts, now: datetime) -> None:
    """Raises TooManyAttempts after too many wrong codes, even if the next code is right."""
    if attempts.wrong < MOST_WRONG_CODES or attempts.since is None:
        return
    left = attempts.since + WRONG_CODES_WINDOW - now
    if left > timedelta():
        seconds = max(1, -(-left // _ONE_SECOND))
        raise TooManyAttempts(
            "You have typed too many wrong codes. "
            f"Please try again in {_in_minutes(seconds)} with a new code.",
            limit=MOST_WRONG_CODES,
            retryAfterSeconds=seconds,
        )


def add_wrong_code(attempts: CodeAttempts, now: datetime) -> CodeAttempts:
    """The attempts after one more wrong code."""
    if attempts.since is None or now - attempts.since >= WRONG_CODES_WINDOW:
        return CodeAttempts(1, now)
    return CodeAttempts(attempts.wrong + 1, attempts.since)


def _in_minutes(seconds: int) -> str:
    minutes = -(-seconds // 60)
    return "1 minute" if minutes == 1 else f"{minutes} minutes"

"""The form in which proven e-mail addresses are compared.

Some letters outside ASCII, such as the Kelvin sign, have an ASCII letter as their lower case. An
address with such a letter would be taken for another address, so it is refused.
"""

import string

MAX_LENGTH = 254
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def proven_address(value: object) -> str | None:
    """Return the address in lower case, or None for a malformed or ambiguous address."""
    if not isinstance(value, str):
        return None
    lowered = value.lower()
    if lowered != value.translate(_ASCII_LOWER):
        return None
    local, _, domain = lowered.rpartition("@")
    is_whole = bool(local and domain) and len(lowered) <= MAX_LENGTH and lowered.isprintable()
    return lowered if is_whole else None

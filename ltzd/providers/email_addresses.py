"""What a proven e-mail address is compared as.

Some letters outside ASCII have an ASCII letter as their lower case, such as the Kelvin sign: an
address with such a letter is another one, and would be taken for it.
"""

import string

LONGEST = 254
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def proven_address(value: object) -> str | None:
    """In lower case; None for what is no address, or would be taken for another one."""
    if not isinstance(value, str):
        return None
    lowered = value.lower()
    if lowered != value.translate(_ASCII_LOWER):
        return None
    local, _, domain = lowered.rpartition("@")
    is_whole = bool(local and domain) and len(lowered) <= LONGEST and lowered.isprintable()
    return lowered if is_whole else None

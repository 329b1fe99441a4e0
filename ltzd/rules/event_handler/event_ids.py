"""Ids of events, which sort by the second in which they were made: UUIDs of version 8 (RFC 9562).

    ffffffff-SSSS-8SSS-[8-b]Srr-rrrrrrrrrrrr

32 bits of ones, the Unix seconds in 32 bits around version and variant, and 58 random bits. Ids of
earlier versions of ltzd are random UUIDs of version 4: all but one in 2³² of them
sort before the ids of this form, so one range of ids holds all earlier events.

Two events of one second have the same id with a probability of 2⁻⁵⁸. The seconds end in 2106.
"""

from typing import Final
from uuid import UUID

RANDOM_BITS: Final = 58
_PREFIX: Final = 0xFFFFFFFF << 96
_VERSION: Final = 8 << 76
_VARIANT: Final = 2 << 62
_LAST_SECOND: Final = 2**32 - 1


def event_id(seconds: int, random: int) -> UUID:
    """The id for a Unix time and `RANDOM_BITS` random bits."""
    return UUID(
        int=_PREFIX
        | seconds >> 16 << 80
        | _VERSION
        | (seconds >> 4 & 0xFFF) << 64
        | _VARIANT
        | (seconds & 0xF) << RANDOM_BITS
        | random
    )


def first_id(seconds: int) -> UUID:
    """The smallest id of a second. A time before 1970 counts as the first second, and a time beyond
    the last second counts as the last one."""
    return event_id(min(max(seconds, 0), _LAST_SECOND), 0)


def seconds_of(id_: UUID) -> int | None:
    """The Unix time in an id, or None for an id of another form."""
    value = id_.int
    if value >> 96 != _PREFIX >> 96 or id_.version != 8:
        return None
    return (value >> 80 & 0xFFFF) << 16 | (value >> 64 & 0xFFF) << 4 | value >> RANDOM_BITS & 0xF

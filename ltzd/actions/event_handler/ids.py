"""Random UUIDs (version 4, RFC 9562) whose randomness is drawn in bulk.

Asking the kernel for each one costs more than making it. Nothing here survives a fork, and ltzd
does not fork.
"""

import os
from collections.abc import Iterator
from uuid import UUID

_BYTES = 16
_IN_BULK = 256


def event_ids() -> Iterator[UUID]:
    while True:
        drawn = os.urandom(_BYTES * _IN_BULK)
        for start in range(0, len(drawn), _BYTES):
            yield UUID(bytes=drawn[start : start + _BYTES], version=4)

"""Random UUIDs (version 4, RFC 9562), with the randomness read in blocks.

Reading it from the kernel for each UUID takes longer than making the UUID. The generator must not
be shared across a fork, which would repeat its ids; ltzd does not fork.
"""

import os
from collections.abc import Iterator
from uuid import UUID

_UUID_BYTES = 16
_UUIDS_IN_A_BLOCK = 256


def event_ids() -> Iterator[UUID]:
    while True:
        block = os.urandom(_UUID_BYTES * _UUIDS_IN_A_BLOCK)
        for start in range(0, len(block), _UUID_BYTES):
            yield UUID(bytes=block[start : start + _UUID_BYTES], version=4)

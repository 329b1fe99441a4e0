"""New ids of events, with the randomness read in blocks.

Reading it from the kernel for each id takes longer than making the id. The generator must not be
shared across a fork, which would repeat its ids; ltzd does not fork.
"""

import os
import time
from collections.abc import Callable, Iterator
from uuid import UUID

from ltzd.rules.event_handler.event_ids import RANDOM_BITS, event_id

_RANDOM_BYTES = 8
_SURPLUS_BITS = _RANDOM_BYTES * 8 - RANDOM_BITS
_IDS_IN_A_BLOCK = 512


def event_ids(clock: Callable[[], float] = time.time) -> Iterator[UUID]:
    while True:
        block = os.urandom(_RANDOM_BYTES * _IDS_IN_A_BLOCK)
        for start in range(0, len(block), _RANDOM_BYTES):
            random = int.from_bytes(block[start : start + _RANDOM_BYTES], "big") >> _SURPLUS_BITS
            yield event_id(int(clock()), random)

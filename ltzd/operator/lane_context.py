"""The objects that all parts of a lane share during one term."""

import asyncio
from dataclasses import dataclass, field

from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.operator.policy import LanePolicy
from ltzd.store.database import Pool
from ltzd.store.operator.lanes import Lane


@dataclass(frozen=True, slots=True)
class LaneContext:
    """`signing_lock` is held from the check of the balance until the signed transaction is reserved
    among those in flight."""

    pool: Pool
    node: Node
    lane: Lane
    policy: LanePolicy
    signing_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    clock: Clock = loop_time

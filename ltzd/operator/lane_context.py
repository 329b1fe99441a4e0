"""The objects that all parts of a lane share during one term."""

import asyncio

import msgspec

from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.operator.policy import LanePolicy
from ltzd.store.database import Pool
from ltzd.store.operator.lanes import Lane


class LaneContext(msgspec.Struct, frozen=True):
    """`signing_lock` is held while new work is signed: its nonces are consecutive. Replacements and
    self-transfers have their nonce and do not take it; `InFlightTransactions.reserving` keeps two
    signatures from spending the same balance."""

    pool: Pool
    node: Node
    lane: Lane
    policy: LanePolicy
    signing_lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    clock: Clock = loop_time

"""What the parts of a lane share during one term."""

from dataclasses import dataclass

from ltzd.chain.node import Node
from ltzd.chain.signing import Signer
from ltzd.operator.policy import LanePolicy, MintTarget
from ltzd.store.database import Pool
from ltzd.store.lanes import Lane


@dataclass(frozen=True, slots=True)
class Desk:
    pool: Pool
    node: Node
    lane: Lane
    target: MintTarget
    signer: Signer
    policy: LanePolicy

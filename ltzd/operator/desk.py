"""What the parts of a lane share during one term."""

import asyncio
from dataclasses import dataclass, field

from ltzd.chain.node import Node
from ltzd.chain.signing import Signer, Unsigned
from ltzd.operator.policy import LanePolicy
from ltzd.rules.fees import Fees
from ltzd.store.database import Pool
from ltzd.store.lanes import Lane
from ltzd.store.transactions import Attempt
from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class Desk:
    """`pen` is held from looking into the purse until what was signed is reserved in the book."""

    pool: Pool
    node: Node
    lane: Lane
    signer: Signer
    policy: LanePolicy
    pen: asyncio.Lock = field(default_factory=asyncio.Lock)

    def sign(self, nonce: int, to: Address, data: bytes, gas_limit: int, fees: Fees) -> Attempt:
        signed = self.signer.sign(
            Unsigned(
                chain_id=self.lane.chain_id,
                nonce=nonce,
                max_priority_fee_per_gas=fees.max_priority_fee_per_gas,
                max_fee_per_gas=fees.max_fee_per_gas,
                gas_limit=gas_limit,
                to=to,
                value=0,
                data=data,
            )
        )
        return Attempt(signed.hash, signed.raw, fees)

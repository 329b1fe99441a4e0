"""Gas limits of mints: LTZ's formula, calibrated against estimates of this chain."""

from uuid import UUID

import structlog

from ltzd.chain.contracts import ltz
from ltzd.chain.node.node import Revert
from ltzd.errors import NodeUnavailable
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.policy import MintTarget
from ltzd.operator.signing import TransactionSigner
from ltzd.rules.operator.mint_gas import USUAL_PERCENT, gas_percent
from ltzd.values import Address, reward_reference

log = structlog.get_logger()

_ESTIMATED_FOR_SECONDS = 600.0
_RETRY_SECONDS = 10.0
_UNUSED_SEQ = 2**64 - 1


class MintGas:
    """A limit has three parts: the formula, the chain's factor, and a rollup's gas for the data.

    A mint is simulated and signed with the same limit.
    """

    def __init__(self, context: LaneContext, target: MintTarget, signer: TransactionSigner) -> None:
        self._context = context
        self._target = target
        self._signer = signer
        self._percent = USUAL_PERCENT
        self._due_at = float("-inf")

    def limit(self, count: int) -> int:
        """The gas limit of a mint of `count` rewards."""
        formula = ltz.mint_gas_limit(count) * self._percent // 100
        return formula + self._signer.l1_costs.extra_gas(ltz.mint_call_bytes(count))

    async def refresh(self) -> None:
        """Estimate a mint every ten minutes; without an answer the factor stays as it is."""
        now = self._context.clock()
        if now < self._due_at:
            return
        self._due_at = now + _RETRY_SECONDS
        try:
            node, wallet = self._context.node, self._context.lane.wallet
            estimate = await node.estimate_gas(self._target.ltz, _mint_of_a_unit(), wallet)
        except NodeUnavailable as error:
            log.warning("mint_gas.no_estimate", reason=error.message)
            return
        if isinstance(estimate, Revert):
            return  # Minting is switched off, or its limit is used up.
        self._due_at = now + _ESTIMATED_FOR_SECONDS
        own_gas = estimate - self._signer.l1_costs.gas(ltz.mint_call_bytes(1))
        percent = gas_percent(own_gas, ltz.mint_gas_limit(1))
        if percent != self._percent:
            log.warning("mint_gas.calibrated", estimate=own_gas, percent=percent)
        self._percent = percent


def _mint_of_a_unit() -> bytes:
    """A mint of one unit to a new holder, with a reference that no reward has; it is never sent."""
    reference = reward_reference(UUID(int=2**128 - 1), 1, _UNUSED_SEQ)
    return ltz.mint_call([ltz.MintEntry(Address(b"\xff" * 20), 1, reference)])

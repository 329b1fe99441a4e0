"""Gas limits of mints: LTZ's formula, calibrated against estimates of this chain."""

import structlog

from ltzd.chain.contracts import ltz
from ltzd.chain.node.answers.typed import Revert
from ltzd.errors import NodeUnavailable
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.mints.batch import NO_REWARD, NO_WALLET, UNUSED_SEQ
from ltzd.operator.policy import MintTarget
from ltzd.operator.signing import TransactionSigner
from ltzd.rules.operator.mint_gas import MOST_PERCENT, USUAL_PERCENT, gas_percent
from ltzd.values import reward_reference

log = structlog.get_logger()

_ESTIMATED_FOR_SECONDS = 600.0
_RETRY_SECONDS = 10.0
_RAISES = (2, 4, 8, 16)


class MintGas:
    """A limit is LTZ's formula times three factors, plus a rollup's gas for the data.

    The factors are this chain's calibration, this term's raise after mints that ran out of gas, and
    the caller's `percent`.
    """

    def __init__(self, context: LaneContext, target: MintTarget, signer: TransactionSigner) -> None:
        self._context = context
        self._target = target
        self._signer = signer
        self._percent = USUAL_PERCENT
        self._raised_percent = 100
        self._due_at = float("-inf")

    def limit(self, count: int, percent: int = 100) -> int:
        """The gas limit of a mint of `count` rewards, with the formula's part times `percent`.

        No factor raises the limit of a single reward above what nodes take.
        """
        extra = self._signer.l1_costs.extra_gas(ltz.mint_call_bytes(count))
        usual = ltz.mint_gas_limit(count) * self._percent // 100 + extra
        raised = (
            ltz.mint_gas_limit(count) * self._percent * self._raised_percent * percent // 100**3
            + extra
        )
        return raised if count > 1 else min(raised, max(usual, self._signer.max_gas_limit))

    def most(self, at_most: int, percent: int = 100) -> int:
        """How many rewards, up to `at_most`, one mint may hold; 0 if a block holds not even one."""
        gas = self._signer.max_gas_limit
        return next((n for n in range(at_most, 0, -1) if self.limit(n, percent) <= gas), 0)

    def raises(self, at_most: int, percent: int) -> list[tuple[int, int]]:
        """The factors by which the limits may be raised, and how many rewards fit then."""
        factors = [each for each in _RAISES if self._raised_percent * each <= MOST_PERCENT]
        fitting = [(factor, self.most(at_most, factor * percent)) for factor in factors]
        return [(factor, count) for factor, count in fitting if count > 0]

    def raise_limits(self, factor: int = 2) -> None:
        """Raise the gas limits of all mints of this term, after a mint that ran out of gas."""
        self._raised_percent = min(self._raised_percent * factor, MOST_PERCENT)
        log.error("mint_gas.raised", percent=self._raised_percent)

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
    reference = reward_reference(NO_REWARD, 1, UNUSED_SEQ)
    return ltz.mint_call([ltz.MintEntry(NO_WALLET, 1, reference)])

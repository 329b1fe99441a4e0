"""Simulates a relay before anybody pays for it: gas, reasons, fees.

Raises TransactionFailed with the decoded reason, ClaimLimitReached, ValidationFailed, and
NodeUnavailable where the node cannot say. Nothing is spent.
"""

import asyncio
from contextlib import suppress

from ltzd.actions.relayer.gas_estimates import GasEstimateCache
from ltzd.chain.contracts import abi_words, reverts
from ltzd.chain.node.node import Node, Revert
from ltzd.concurrency.cached_value import CachedValue
from ltzd.errors import (
    ClaimLimitReached,
    NodeUnavailable,
    Refused,
    TransactionFailed,
    ValidationFailed,
)
from ltzd.rules.operator.fees import GWEI, FeePolicy, Fees, fees_for
from ltzd.rules.operator.sendable import intrinsic_gas
from ltzd.rules.relayer.allowed_calls import MAX_GAS_LIMIT
from ltzd.rules.relayer.calls import RelayPlan
from ltzd.rules.relayer.limits import check_gas_limit, claim_limit_reached
from ltzd.values import Address

_BEGINNERS = 8
"""Calls like no other so far that are estimated at once."""


class RelaySimulator:
    def __init__(self, node: Node, policy: FeePolicy) -> None:
        self._node = node
        self._policy = policy
        self._market = CachedValue(node.current_gas_price)
        self._guesses = GasEstimateCache()
        self._beginning = asyncio.Semaphore(_BEGINNERS)

    async def gas_limit(self, plan: RelayPlan, sender: Address, wanted: int | None) -> int:
        """What to send it with: what was asked for, or a quarter more than it needs now.

        A call is never simulated with more gas than it is sent with, and never with so little that
        nodes would differ about what it means.
        """
        least = check_gas_limit(plan.data, wanted)
        if plan.inner_call is not None:
            least = max(least, await self._swallowed(plan.inner_call, sender))
        if wanted is None:
            return max(least, await self._found_out(plan, sender))
        if wanted >= least and await self._passes_with(plan, sender, wanted):
            return wanted
        needed = max(least, await self._needed(plan, sender))
        raise ValidationFailed(
            "gasLimit is too small for this call", gasLimit=wanted, neededGas=needed
        )

    def prepare(self) -> None:
        """Begin to ask for what `fees` needs."""
        self._market.prepare()

    async def fees(self) -> Fees:
        """What it would be signed at. Raises ValidationFailed while the cap forbids."""
        gas_price = await self._market.now()
        fees = fees_for(gas_price, self._policy)
        if fees is None:
            asked = gas_price.base_fee + max(gas_price.tip, self._policy.min_tip)
            raise ValidationFailed(
                "The gas price is above the limit: try again later",
                gasPriceGwei=asked / GWEI,
                maxGwei=self._policy.cap / GWEI,
            )
        return fees

    async def worst_fee(self) -> int:
        """Wei per gas that it would be signed at now; the cap where nobody can tell."""
        with suppress(ValidationFailed, NodeUnavailable):
            return (await self.fees()).max_fee_per_gas
        return self._policy.cap

    async def why(self, to: Address, data: bytes, sender: Address, block: int) -> str:
        """The reason of a call that failed in this block, as far as the chain can tell now."""
        said = await self.revert_at(to, data, sender, block)
        return "reverted on chain" if said is None else reverts.describe(said)

    async def revert_at(
        self, to: Address, data: bytes, sender: Address, block: int
    ) -> bytes | None:
        """What a call that failed in this block says there, or said before it."""
        for at in (block, block - 1):
            try:
                revert = await self._node.simulate_call(to, data, sender, at=at)
            except NodeUnavailable:
                continue
            if revert is not None and revert.data is not None:
                return revert.data
        return None

    async def _swallowed(self, call: tuple[Address, bytes], sender: Address) -> int:
        """Gas without which a call inside fails unseen: its own, and room for what is around."""
        to, data = call
        needed = await self._node.estimate_gas(to, data, sender)
        if isinstance(needed, Revert):
            raise _refusal(needed)
        return _with_room(needed)

    async def _found_out(self, plan: RelayPlan, sender: Address) -> int:
        if self._guesses.has(plan):
            return await self._guessed(plan, sender) or await self._estimated(plan, sender)
        async with self._beginning:  # Who waits here may guess by what the first have learnt.
            return await self._guessed(plan, sender) or await self._estimated(plan, sender)

    async def _guessed(self, plan: RelayPlan, sender: Address) -> int | None:
        """None where nobody can guess, or too little was guessed."""
        gas = self._guesses.of(plan)
        if gas is None or not await self._passes_with(plan, sender, gas):
            return None
        return _with_room(gas)

    async def _estimated(self, plan: RelayPlan, sender: Address) -> int:
        needed = await self._needed(plan, sender)
        if needed > MAX_GAS_LIMIT:
            raise _too_much(needed)
        self._guesses.learn(plan, needed)
        return _with_room(needed)

    async def _needed(self, plan: RelayPlan, sender: Address) -> int:
        needed = await self._node.estimate_gas(plan.to, plan.data, sender)
        if isinstance(needed, Revert):
            raise _refusal(needed)
        if needed < intrinsic_gas(plan.data):
            raise NodeUnavailable("eth_estimateGas: less than any chain charges for the data")
        return needed

    async def _passes_with(self, plan: RelayPlan, sender: Address, gas: int) -> bool:
        return await self._node.simulate_call(plan.to, plan.data, sender, gas=gas) is None


def _with_room(needed: int) -> int:
    return min(MAX_GAS_LIMIT, needed * 5 // 4)


def _refusal(revert: Revert) -> Refused | NodeUnavailable:
    if revert.data is None:
        text = revert.text.lower()
        if "gas required exceeds" in text or "out of gas" in text or "outofgas" in text:
            return _too_much(None)
        return NodeUnavailable(f"eth_estimateGas: {revert.text}")
    if reverts.error_name(revert.data) == "ClaimLimitReached":
        with suppress(ValueError):  # malformed: then it is a reason like any other
            return _claim_limit(revert.data)
    reason = reverts.describe(revert.data)
    return TransactionFailed(f"Transaction would fail: {reason}", reason=reason)


def _claim_limit(data: bytes) -> ClaimLimitReached:
    read = abi_words.WordReader(data[4:])
    return claim_limit_reached(read.uint(), read.uint(), read.uint())


def _too_much(needed: int | None) -> ValidationFailed:
    facts = {} if needed is None else {"neededGas": needed}
    return ValidationFailed(
        f"The call needs more than {MAX_GAS_LIMIT} gas", maxGasLimit=MAX_GAS_LIMIT, **facts
    )

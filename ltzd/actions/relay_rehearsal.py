"""Simulates a relay before anybody pays for it: gas, reasons, fees.

Raises TransactionFailed with the decoded reason, ClaimLimitReached, ValidationFailed, and
NodeUnavailable where the node cannot say. Nothing is spent.
"""

import asyncio

from ltzd.chain import reverts, words
from ltzd.chain.node import Node, Revert
from ltzd.errors import (
    ClaimLimitReached,
    NodeUnavailable,
    Refused,
    TransactionFailed,
    ValidationFailed,
)
from ltzd.rules.fees import GWEI, FeePolicy, Fees, Market, fees_for
from ltzd.rules.relay_limits import claim_limit_reached
from ltzd.rules.relay_table import MAX_GAS_LIMIT
from ltzd.rules.relaying import RelayPlan
from ltzd.values import Address

_FRESH_SECONDS = 1.0


class RelayRehearsal:
    def __init__(self, node: Node, policy: FeePolicy) -> None:
        self._node = node
        self._policy = policy
        self._market: Market | None = None
        self._asked_at = float("-inf")

    async def gas_limit(self, plan: RelayPlan, sender: Address, wanted: int | None) -> int:
        """What to send it with: what was asked for, or a quarter more than it needs now."""
        if wanted is not None and await self._passes_with(plan, sender, wanted):
            return wanted
        needed = await self._node.gas_of(plan.to, plan.data, sender)
        if isinstance(needed, Revert):
            raise _refusal(needed)
        if wanted is not None:
            raise ValidationFailed(
                "gasLimit is too small for this call", gasLimit=wanted, neededGas=needed
            )
        if needed > MAX_GAS_LIMIT:
            raise _too_much(needed)
        return min(MAX_GAS_LIMIT, needed * 5 // 4)

    async def fees(self) -> Fees:
        """What it would be signed at. Raises ValidationFailed while the cap forbids."""
        market = await self._market_now()
        fees = fees_for(market, self._policy)
        if fees is None:
            asked = market.base_fee + max(market.tip, self._policy.min_tip)
            raise ValidationFailed(
                "The gas price is above the limit: try again later",
                gasPriceGwei=asked / GWEI,
                maxGwei=self._policy.cap / GWEI,
            )
        return fees

    async def why(self, to: Address, data: bytes, sender: Address, block: int) -> str:
        """The reason of a call that failed in this block, as far as the chain can tell now."""
        for at in (block, block - 1):
            try:
                revert = await self._node.revert_of(to, data, sender, at=at)
            except NodeUnavailable:
                continue
            if revert is not None and revert.data is not None:
                return reverts.reason_of(revert.data)
        return "reverted on chain"

    async def _passes_with(self, plan: RelayPlan, sender: Address, gas: int) -> bool:
        return await self._node.revert_of(plan.to, plan.data, sender, gas=gas) is None

    async def _market_now(self) -> Market:
        """A second old at most. Raises NodeUnavailable."""
        now = asyncio.get_running_loop().time()
        if self._market is None or now - self._asked_at > _FRESH_SECONDS:
            head = await self._node.block("latest")
            if head is None:
                raise NodeUnavailable("The node has no latest block")
            self._market = await self._node.market(head)
            self._asked_at = now
        return self._market


def _refusal(revert: Revert) -> Refused | NodeUnavailable:
    if revert.data is None:
        text = revert.text.lower()
        if "gas required exceeds" in text or "out of gas" in text or "outofgas" in text:
            return _too_much(None)
        return NodeUnavailable(f"eth_estimateGas: {revert.text}")
    name = reverts.name_of(revert.data)
    if name == "ClaimLimitReached":
        return _claim_limit(revert.data)
    reason = reverts.reason_of(revert.data)
    return TransactionFailed(f"Transaction would fail: {reason}", reason=reason)


def _claim_limit(data: bytes) -> ClaimLimitReached:
    read = words.Words(data[4:])
    return claim_limit_reached(read.uint(), read.uint(), read.uint())


def _too_much(needed: int | None) -> ValidationFailed:
    facts = {} if needed is None else {"neededGas": needed}
    return ValidationFailed(
        f"The call needs more than {MAX_GAS_LIMIT} gas", maxGasLimit=MAX_GAS_LIMIT, **facts
    )

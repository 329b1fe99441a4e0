"""Simulates a relay before it is paid for: its gas limit, its fees, and why it would revert.

Raises TransactionFailed with the decoded reason, ClaimLimitReached, ValidationFailed, and
NodeUnavailable if the node does not answer. Nothing is sent.
"""

import asyncio
from contextlib import suppress

import msgspec

from ltzd.actions.relayer.gas_estimates import GasEstimateCache
from ltzd.chain.contracts import abi_words, reverts
from ltzd.chain.node.answers.typed import Revert
from ltzd.chain.node.gas_prices import prevailing_gas_price
from ltzd.chain.node.l1_costs import L1CostReader
from ltzd.chain.node.node import Node
from ltzd.chain.node.second_opinions import is_passed_by_others
from ltzd.chain.node.typed_calls.requests import BlockRef
from ltzd.chain.node.view import ChainView
from ltzd.chain.node.views import ChainViews
from ltzd.concurrency.cached_value import CachedValue
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.errors import (
    ClaimLimitReached,
    NodeUnavailable,
    Refused,
    TransactionFailed,
    ValidationFailed,
)
from ltzd.rules.operator.fees import GWEI, FeePolicy, Fees, GasPrice, fees_for, is_implausible
from ltzd.rules.operator.l1_costs import L1Costs
from ltzd.rules.operator.sendable import intrinsic_gas
from ltzd.rules.relayer.allowed_calls import MAX_GAS_LIMIT
from ltzd.rules.relayer.calls import RelayPlan
from ltzd.rules.relayer.limits import check_gas_limit, claim_limit_reached
from ltzd.values import Address

_MAX_FIRST_ESTIMATES = 8
"""How many calls without a cached estimate are estimated at the same time."""

_MAX_RENEWALS = 64

_RENEWAL_PAUSE_SECONDS = 0.05
"""An estimate occupies a node for ten simulations: the call that made it due is published first."""

_EMPTIED_SLOT_GAS = 20_000
"""Covers what a payment costs above its estimate if the payee has spent all LTZ since: the payee's
balance is a storage slot, and a slot that is zero takes 20,000 gas in place of 2,900."""

_NODES_REFUSALS = (TransactionFailed, ClaimLimitReached, ValidationFailed)
"""Outcomes of a simulation that rest on a node's word."""


class SimulatedAt(msgspec.Struct, frozen=True):
    """The node and the block that a call is simulated with."""

    node: Node
    block: BlockRef = "latest"


class RelaySimulator:
    def __init__(self, node: Node, policy: FeePolicy, clock: Clock = loop_time) -> None:
        self._node = node
        self._views = ChainViews(node, clock)
        self._policy = policy
        self._gas_price = CachedValue(self._read_gas_price, clock)
        self._l1_costs = CachedValue(L1CostReader(node, clock).read, clock)
        self._estimates = GasEstimateCache(clock)
        self._first_estimates = asyncio.Semaphore(_MAX_FIRST_ESTIMATES)
        self._renewals: SingleFlight[str, int] = SingleFlight("gas estimate", _MAX_RENEWALS)

    async def gas_limit(
        self, plan: RelayPlan, sender: Address, requested: int | None, at: SimulatedAt
    ) -> int:
        """Return the gas limit to send the call with, after a simulation that passed.

        The limit is the requested one, or more than the call needs now: a quarter more, and enough
        for a payee who spends all LTZ before the call is mined. The call is never simulated with
        more gas than it is sent with, nor with so little that nodes would disagree about its
        result. A refusal counts unless two other nodes let the call pass.
        """
        least = check_gas_limit(plan.data, requested)
        try:
            return await self._gas_limit(plan, sender, requested, least, at)
        except _NODES_REFUSALS:
            limit = await self._limit_of_others(plan, sender, requested, least, at.node)
            if limit is None:
                raise
            return limit

    async def _limit_of_others(
        self, plan: RelayPlan, sender: Address, requested: int | None, least: int, node: Node
    ) -> int | None:
        """The gas limit of a call that passes at two other nodes, or None."""
        limits = []

        async def passes(view: ChainView) -> bool:
            at = SimulatedAt(view.node, view.head)
            try:
                limits.append(await self._gas_limit(plan, sender, requested, least, at))
            except _NODES_REFUSALS:
                return False
            return True

        return max(limits) if await is_passed_by_others(node, passes) else None

    async def _gas_limit(
        self, plan: RelayPlan, sender: Address, requested: int | None, least: int, at: SimulatedAt
    ) -> int:
        if plan.inner_call is not None:
            least = max(least, await self._gas_for_inner_call(plan.inner_call, sender, at))
        if requested is None:
            return max(least, await self._sufficient_gas(plan, sender, at))
        if requested >= least and await self._passes_with(plan, sender, requested, at):
            return requested
        l1_costs = await self._l1_costs.get()
        estimate = await self._estimate(plan, sender, at)
        needed = max(least, estimate) + l1_costs.gas(len(plan.data))
        raise ValidationFailed(
            "gasLimit is too small for this call", gasLimit=requested, neededGas=needed
        )

    def prefetch(self) -> None:
        """Start reading the prices, for a call of `fees` that will follow."""
        self._gas_price.prefetch()
        self._l1_costs.prefetch()

    async def keep_fresh(self) -> None:
        """Read the prices in the background while callers use them, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._gas_price.keep_fresh())
            group.create_task(self._l1_costs.keep_fresh())

    async def l1_costs(self) -> L1Costs:
        """Return what a rollup charges for the data of a transaction; zero elsewhere."""
        return await self._l1_costs.get()

    async def max_fee(self) -> int:
        """Return the wei per gas of `fees`, or the cap if they are above it or unknown."""
        with suppress(ValidationFailed, NodeUnavailable):
            return (await self.fees()).max_fee_per_gas
        return self._policy.cap

    async def fees(self) -> Fees:
        """Return the fees of a transaction signed now. Raises ValidationFailed above the cap."""
        price = await self._gas_price.get()
        fees = fees_for(price, self._policy)
        if fees is None:
            needed = price.base_fee + max(price.tip, self._policy.min_tip)
            raise ValidationFailed(
                "The gas price is above the limit: try again later",
                gasPriceGwei=needed / GWEI,
                maxGwei=self._policy.cap / GWEI,
            )
        return fees

    async def _read_gas_price(self) -> GasPrice:
        async def read(node: Node) -> GasPrice:
            suggested = await node.current_gas_price()
            if not is_implausible(suggested, self._policy):
                return suggested
            return await prevailing_gas_price(node, suggested, self._policy)

        return await self._views.decide_at_head(read)

    async def failure_reason(self, to: Address, data: bytes, sender: Address, block: int) -> str:
        """Return why a call failed in this block, as far as the nodes can still tell."""
        revert_data = await self.revert_data(to, data, sender, block)
        return "reverted on chain" if revert_data is None else reverts.describe(revert_data)

    async def revert_data(
        self, to: Address, data: bytes, sender: Address, block: int
    ) -> bytes | None:
        """Simulate a call that failed in this block there, then at the block before it."""
        try:
            node = self._node.pinned()
        except NodeUnavailable:
            return None
        for at in (block, block - 1):
            try:
                revert = await node.simulate_call(to, data, sender, at=at)
            except NodeUnavailable:
                continue
            if revert is not None and revert.data is not None:
                return revert.data
        return None

    async def _gas_for_inner_call(
        self, call: tuple[Address, bytes], sender: Address, at: SimulatedAt
    ) -> int:
        """Return the gas below which the inner call could fail while the whole call succeeds."""
        to, data = call
        needed = await at.node.estimate_gas(to, data, sender, at.block)
        if isinstance(needed, Revert):
            raise _refusal(needed)
        return _a_quarter_more(needed)

    async def _sufficient_gas(self, plan: RelayPlan, sender: Address, at: SimulatedAt) -> int:
        if plan in self._estimates:
            return await self._cached_or_new(plan, sender, at)
        async with self._first_estimates:  # The first callers fill the cache for those behind.
            return await self._cached_or_new(plan, sender, at)

    async def _cached_or_new(self, plan: RelayPlan, sender: Address, at: SimulatedAt) -> int:
        cached = await self._cached_gas(plan, sender, at)
        return cached or await self._new_estimate(plan, sender, at)

    async def _cached_gas(self, plan: RelayPlan, sender: Address, at: SimulatedAt) -> int | None:
        """Return None if nothing is cached, or if the call does not pass with it.

        The caller does not wait for a renewal that is due.
        """
        gas = self._estimates.get(plan)
        if gas is None or not await self._passes_with(plan, sender, gas, at):
            return None
        if self._estimates.take_renewal(plan):
            self._renewals.begin(plan.function, lambda: self._renewed(plan, sender, at))
        return _with_margin(gas)

    async def _renewed(self, plan: RelayPlan, sender: Address, at: SimulatedAt) -> int:
        await asyncio.sleep(_RENEWAL_PAUSE_SECONDS)
        return await self._new_estimate(plan, sender, at)

    async def _new_estimate(self, plan: RelayPlan, sender: Address, at: SimulatedAt) -> int:
        needed = await self._estimate(plan, sender, at)
        if needed > MAX_GAS_LIMIT:
            raise _too_much_gas(needed)
        self._estimates.put(plan, needed)
        return _with_margin(needed)

    async def _estimate(self, plan: RelayPlan, sender: Address, at: SimulatedAt) -> int:
        needed = await at.node.estimate_gas(plan.to, plan.data, sender, at.block)
        if isinstance(needed, Revert):
            raise _refusal(needed)
        if needed < intrinsic_gas(plan.data):
            raise NodeUnavailable("eth_estimateGas: less than any chain charges for the data")
        return needed

    async def _passes_with(
        self, plan: RelayPlan, sender: Address, gas: int, at: SimulatedAt
    ) -> bool:
        """Whether the call passes with this gas limit, less what a rollup takes of it for data.

        Nodes do not agree whether a simulation pays for data, and a call that was simulated with
        more gas than it has on chain fails there.
        """
        l1_gas = (await self._l1_costs.get()).gas(len(plan.data))
        own_gas = gas - l1_gas
        if own_gas < intrinsic_gas(plan.data):
            return False
        revert = await at.node.simulate_call(plan.to, plan.data, sender, gas=own_gas, at=at.block)
        return revert is None


def _with_margin(needed: int) -> int:
    return max(_a_quarter_more(needed), min(MAX_GAS_LIMIT, needed + _EMPTIED_SLOT_GAS))


def _a_quarter_more(needed: int) -> int:
    return min(MAX_GAS_LIMIT, needed * 5 // 4)


def _refusal(revert: Revert) -> Refused | NodeUnavailable:
    if revert.data is None:
        if revert.is_out_of_gas:
            return _too_much_gas(None)
        return NodeUnavailable(f"eth_estimateGas: {revert.text}")
    if reverts.error_name(revert.data) == "ClaimLimitReached":
        with suppress(ValueError):  # malformed data is described like any other revert
            return _claim_limit(revert.data)
    reason = reverts.describe(revert.data)
    return TransactionFailed(f"Transaction would fail: {reason}", reason=reason)


def _claim_limit(data: bytes) -> ClaimLimitReached:
    words = abi_words.WordReader(data[4:])
    return claim_limit_reached(words.uint(), words.uint(), words.uint())


def _too_much_gas(needed: int | None) -> ValidationFailed:
    details = {} if needed is None else {"neededGas": needed}
    return ValidationFailed(
        f"The call needs more than {MAX_GAS_LIMIT} gas", maxGasLimit=MAX_GAS_LIMIT, **details
    )

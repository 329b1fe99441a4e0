"""Tracks the balance of the lane's wallet and the fees of the next block.

Units: wei.
"""

from dataclasses import dataclass

import structlog

from ltzd.chain.node.gas_prices import plausible_gas_price
from ltzd.chain.node.l1_costs import L1CostReader
from ltzd.chain.node.node import Account, Node
from ltzd.chain.node.view import ChainView
from ltzd.operator.fleet import lane_gauges
from ltzd.rules.operator.fees import FeePolicy, Fees, GasPrice, fees_for
from ltzd.rules.operator.l1_costs import NO_L1_COSTS, L1Costs
from ltzd.store.operator.lanes import Lane
from ltzd.values import hex_of

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Reading:
    gas_price: GasPrice
    l1_costs: L1Costs
    balance: int
    view: ChainView


class FundsTracker:
    """All values are None before the first `apply`. `fees` is also None while the cap forbids.

    `l1_costs` are those of a rollup, and zero elsewhere. A balance that falls below `floor_wei` is
    logged.
    """

    def __init__(self, node: Node, lane: Lane, policy: FeePolicy, floor_wei: int = 0) -> None:
        self._node = node
        self._wallet = lane.wallet
        self._lane = lane
        self._policy = policy
        self._floor_wei = floor_wei
        self._is_low = False
        self.balance: int | None = None
        self.gas_price: GasPrice | None = None
        self.fees: Fees | None = None
        self.block_gas_limit: int | None = None
        self._read: _Reading | None = None
        self._account_read: tuple[ChainView, Account] | None = None
        self.l1_costs = NO_L1_COSTS
        self._l1_costs = L1CostReader(node)

    async def read(self, view: ChainView) -> None:
        """Read fees, balance and the block's gas limit, which `apply` then sets at once.

        Raises NodeUnavailable.
        """
        suggested = await view.node.gas_price(view.head)
        gas_price = await plausible_gas_price(self._node, suggested, self._policy)
        l1_costs = await self._l1_costs.read()
        balance = await self.read_balance(view)
        self._read = _Reading(gas_price, l1_costs, balance, view)

    def apply(self) -> None:
        """Set what the last `read` has read."""
        reading = self._read
        assert reading is not None, "read() comes first"
        gas_price, self.l1_costs = reading.gas_price, reading.l1_costs
        self.gas_price, self.fees = gas_price, fees_for(gas_price, self._policy)
        self.block_gas_limit = reading.view.head.gas_limit
        self.set_balance(reading.balance)
        lane_gauges.BASE_FEE_WEI.set(self._lane, gas_price.base_fee)
        lane_gauges.HELD_BY_CAP.set(self._lane, self.fees is None)

    async def read_balance(self, view: ChainView) -> int:
        """Read what `set_balance` then sets, once for each view. Raises NodeUnavailable."""
        return (await self._account(view)).balance

    async def read_nonce(self, view: ChainView) -> int:
        """The wallet's nonce after the view's block, in the same request as its balance.

        Raises NodeUnavailable.
        """
        return (await self._account(view)).nonce

    async def _account(self, view: ChainView) -> Account:
        if self._account_read is None or self._account_read[0] is not view:
            self._account_read = view, await view.account(self._wallet)
        return self._account_read[1]

    def set_balance(self, balance: int) -> None:
        self.balance = balance
        lane_gauges.BALANCE_WEI.set(self._lane, balance)
        is_low = balance < self._floor_wei
        if is_low and not self._is_low:
            log.error(
                "balance.below_floor",
                kind=self._lane.kind,
                wallet=hex_of(self._wallet),
                balance_wei=balance,
                floor_wei=self._floor_wei,
            )
        self._is_low = is_low

    def forget_fees(self) -> None:
        """Stops the signing while the node does not answer: today's fees may be too low later."""
        self.gas_price = self.fees = None

    def can_afford(self, max_cost_wei: int, reserved_wei: int) -> bool:
        """Whether the balance covers `max_cost_wei` beside `reserved_wei` in flight."""
        return self.balance is not None and self.balance >= reserved_wei + max_cost_wei

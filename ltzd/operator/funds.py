"""Tracks the balance of the lane's wallet and the fees of the next block.

Units: wei.
"""

from dataclasses import dataclass

from ltzd import telemetry
from ltzd.chain.node.gas_prices import plausible_gas_price
from ltzd.chain.node.node import Node
from ltzd.chain.node.view import ChainView
from ltzd.rules.operator.fees import FeePolicy, Fees, GasPrice, fees_for
from ltzd.store.operator.lanes import Lane


@dataclass(frozen=True, slots=True)
class _Reading:
    gas_price: GasPrice
    balance: int
    view: ChainView


class FundsTracker:
    """All values are None before the first `refresh`. `fees` is also None while the cap forbids."""

    def __init__(self, node: Node, lane: Lane, policy: FeePolicy) -> None:
        self._node = node
        self._wallet = lane.wallet
        self._kind = lane.kind
        self._policy = policy
        self.balance: int | None = None
        self.gas_price: GasPrice | None = None
        self.fees: Fees | None = None
        self.block_gas_limit: int | None = None
        self._read: _Reading | None = None

    async def refresh(self, view: ChainView) -> None:
        """Read fees, balance and the block's gas limit as of a view. Raises NodeUnavailable."""
        await self.read(view)
        self.apply()

    async def read(self, view: ChainView) -> None:
        """Read what `apply` then sets at once with other values of the same view.

        Raises NodeUnavailable.
        """
        suggested = await view.node.gas_price(view.head)
        gas_price = await plausible_gas_price(self._node, suggested, self._policy)
        balance = await view.balance(self._wallet)
        self._read = _Reading(gas_price, balance, view)

    def apply(self) -> None:
        """Set what the last `read` has read."""
        reading = self._read
        assert reading is not None, "read() comes first"
        gas_price = reading.gas_price
        self.gas_price, self.fees = gas_price, fees_for(gas_price, self._policy)
        self.block_gas_limit = reading.view.head.gas_limit
        self.set_balance(reading.balance)
        telemetry.BASE_FEE_WEI.labels(self._kind).set(gas_price.base_fee)
        telemetry.HELD_BY_CAP.labels(self._kind).set(self.fees is None)

    async def read_balance(self, view: ChainView) -> int:
        """Read what `set_balance` then sets. Raises NodeUnavailable."""
        return await view.balance(self._wallet)

    def set_balance(self, balance: int) -> None:
        self.balance = balance
        telemetry.BALANCE_WEI.labels(self._kind).set(balance)

    def forget_fees(self) -> None:
        """Stops the signing while the node does not answer: today's fees may be too low later."""
        self.gas_price = self.fees = None

    def can_afford(self, max_cost_wei: int, reserved_wei: int) -> bool:
        """Whether the balance covers `max_cost_wei` beside `reserved_wei` in flight."""
        return self.balance is not None and self.balance >= reserved_wei + max_cost_wei

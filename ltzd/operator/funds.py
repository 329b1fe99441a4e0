"""What the lane's wallet may spend now: the next block's fees, its balance less what is reserved.

Units: wei.
"""

from ltzd import telemetry
from ltzd.chain.node.node import Header, Node
from ltzd.rules.operator.fees import FeePolicy, Fees, GasPrice, fees_for
from ltzd.store.operator.lanes import Lane


class FundsTracker:
    """`market` and `block_gas_limit` are None until a block was seen; `fees` also while the cap
    forbids."""

    def __init__(self, node: Node, lane: Lane, policy: FeePolicy) -> None:
        self._node = node
        self._wallet = lane.wallet
        self._kind = lane.kind
        self._policy = policy
        self.balance: int | None = None
        self.gas_price: GasPrice | None = None
        self.fees: Fees | None = None
        self.block_gas_limit: int | None = None

    async def look(self, head: Header) -> None:
        """Take fees, balance and the block's gas limit as of `head`. Raises NodeUnavailable."""
        gas_price = await self._node.gas_price(head)
        await self.refresh_balance()
        self.gas_price, self.fees = gas_price, fees_for(gas_price, self._policy)
        self.block_gas_limit = head.gas_limit
        telemetry.BASE_FEE_WEI.labels(self._kind).set(gas_price.base_fee)
        telemetry.HELD_BY_CAP.labels(self._kind).set(self.fees is None)

    async def refresh_balance(self) -> None:
        """Take the balance alone. Raises NodeUnavailable."""
        self.balance = balance = await self._node.balance(self._wallet)
        telemetry.BALANCE_WEI.labels(self._kind).set(balance)

    def forget(self) -> None:
        """Without a node that answers nothing is signed: fees of now may be too low later."""
        self.gas_price = self.fees = None

    def can_afford(self, max_cost_wei: int, reserved: int) -> bool:
        """Whether the balance covers `max_cost_wei` beside `reserved` wei in flight."""
        return self.balance is not None and self.balance >= reserved + max_cost_wei

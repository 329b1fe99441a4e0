"""What the lane's wallet may spend now: the newest block's fees, its balance less what is reserved.

Units: wei.
"""

from ltzd import telemetry
from ltzd.chain.node import Header, Node
from ltzd.errors import NodeUnavailable
from ltzd.operator.policy import MINT
from ltzd.rules.fees import FeePolicy, Fees, fees_for
from ltzd.values import Address


class Purse:
    """Answers `None` for fees until a block was seen, and while the cap forbids."""

    def __init__(self, node: Node, wallet: Address, policy: FeePolicy) -> None:
        self._node = node
        self._wallet = wallet
        self._policy = policy
        self.balance: int | None = None
        self.fees: Fees | None = None

    async def look(self, head: Header) -> None:
        """Take fees and balance as of `head`. Raises NodeUnavailable."""
        if head.base_fee is None:
            raise NodeUnavailable("The node's blocks carry no base fee (EIP-1559)")
        tip = await self._node.priority_fee()
        self.balance = balance = await self._node.balance(self._wallet)
        self.fees = fees_for(head.base_fee, tip, self._policy)
        telemetry.HELD_BY_CAP.labels(MINT).set(self.fees is None)
        telemetry.BALANCE_WEI.labels(MINT).set(balance)

    def forget(self) -> None:
        """Without a node that answers nothing is signed: fees of now may be too low later."""
        self.fees = None

    def can_afford(self, gas_limit: int, reserved: int) -> bool:
        """Whether the balance covers `gas_limit` at worst beside `reserved` wei in flight."""
        return (
            self.fees is not None
            and self.balance is not None
            and self.balance >= reserved + gas_limit * self.fees.max_fee_per_gas
        )

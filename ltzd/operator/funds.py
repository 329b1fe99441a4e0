"""Tracks the wallet's balance, the next block's fees and the block gas limit.

All three come from one node. A value that would stop the lane is compared with other nodes'
first (`chain/node/second_opinions.py`). Units: wei.
"""

import msgspec
import structlog

from ltzd.chain.node.answers.typed import Account, Header
from ltzd.chain.node.gas_prices import prevailing_gas_price
from ltzd.chain.node.l1_costs import L1CostReader
from ltzd.chain.node.node import Node
from ltzd.chain.node.second_opinions import Question, compare_views, compare_with_others
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.operator.fleet import lane_gauges
from ltzd.rules.operator.fees import FeePolicy, Fees, GasPrice, fees_for, is_implausible
from ltzd.rules.operator.l1_costs import NO_L1_COSTS, L1Costs
from ltzd.rules.operator.sendable import TRANSACTION_GAS_CAP
from ltzd.store.operator.lanes import Lane
from ltzd.values import hex_of

log = structlog.get_logger()

BALANCE = "balance"
"""Nodes show different balances, or nonces, of a wallet after the same block."""
BLOCK_GAS = "block_gas"
"""Nodes show different gas limits of the same block."""


class _BlockGas(msgspec.Struct, frozen=True):
    limit: int | None
    is_confirmed: bool = True


class _Reading(msgspec.Struct, frozen=True):
    gas_price: GasPrice
    l1_costs: L1Costs
    balance: int
    block_gas: _BlockGas


class FundsTracker:
    """All values are None before the first `apply`. `fees` is also None while the cap forbids.

    `l1_costs` are a rollup's prices for data, and zero on other chains. A balance that falls below
    `floor_wei` is logged. `is_block_gas_confirmed` is false while only one of several nodes has
    given the block gas limit.
    """

    def __init__(self, node: Node, lane: Lane, policy: FeePolicy, floor_wei: int = 0) -> None:
        self._wallet = lane.wallet
        self._lane = lane
        self._policy = policy
        self._floor_wei = floor_wei
        self._is_low = False
        self.balance: int | None = None
        self.gas_price: GasPrice | None = None
        self.fees: Fees | None = None
        self.block_gas_limit: int | None = None
        self.is_block_gas_confirmed = True
        self._read: _Reading | None = None
        self._account_read: tuple[ChainView, Account] | None = None
        self._balance_read: tuple[ChainView, int] | None = None
        self.l1_costs = NO_L1_COSTS
        self._l1_costs = L1CostReader(node)
        self._needed_gas = 0
        """The gas that the balance had to cover when the lane last asked."""
        self._mined_nonces = 0
        """The number of nonces whose costs are no longer reserved: a balance must exclude them."""

    async def read(self, view: ChainView, *, is_late: bool = False) -> None:
        """Read fees, balance and the block's gas limit, which `apply` then sets at once.

        `is_late`: a published transaction is not mined, so the price may be too low. Raises
        NodeUnavailable.
        """
        gas_price = await view.node.gas_price(view.head)
        account = await self._account(view)
        if is_implausible(gas_price, self._policy) or self._is_short(account.balance, gas_price):
            gas_price = await prevailing_gas_price(view.node, gas_price, self._policy)
        elif is_late:
            gas_price = await prevailing_gas_price(
                view.node, gas_price, self._policy, is_too_low=True
            )
        l1_costs = await self.read_l1_costs()
        balance = await self._read_balance(view, gas_price)
        self._read = _Reading(gas_price, l1_costs, balance, await _block_gas(view))

    def apply(self) -> None:
        """Set what the last `read` has read."""
        reading = self._read
        assert reading is not None, "read() comes first"
        gas_price, self.l1_costs = reading.gas_price, reading.l1_costs
        self.gas_price, self.fees = gas_price, fees_for(gas_price, self._policy)
        self.block_gas_limit = reading.block_gas.limit
        self.is_block_gas_confirmed = reading.block_gas.is_confirmed
        self.set_balance(reading.balance)
        lane_gauges.BASE_FEE_WEI.set(self._lane, gas_price.base_fee)
        lane_gauges.HELD_BY_CAP.set(self._lane, self.fees is None)

    async def read_l1_costs(self) -> L1Costs:
        """A rollup's prices, at most 10 s old if the node answers; `l1_costs` stays until `apply`.

        Raises NodeUnavailable.
        """
        return await self._l1_costs.read()

    async def read_balance(self, view: ChainView) -> int:
        """Read what `set_balance` then sets, once for each view. Raises NodeUnavailable."""
        return await self._read_balance(view, self.gas_price)

    async def _read_balance(self, view: ChainView, gas_price: GasPrice | None) -> int:
        if self._balance_read is not None and self._balance_read[0] is view:
            return self._balance_read[1]
        balance = (await self._account(view)).balance
        if gas_price is not None and self._is_short(balance, gas_price):
            compared = await compare_views(view, balance, self._other_balance, int, BALANCE)
            balance = compared.answer
        self._balance_read = view, balance
        return balance

    async def _other_balance(self, view: ChainView) -> int:
        """Raises NodeUnavailable, also for a node so far behind that its balance is outdated."""
        account = await view.account(self._wallet)
        if account.nonce < self._mined_nonces:
            raise NodeUnavailable("The node is behind the wallet's mined transactions")
        return account.balance

    def _is_short(self, balance: int, gas_price: GasPrice) -> bool:
        """Whether the balance, at this gas price, covers less gas than the lane last needed."""
        fees = fees_for(gas_price, self._policy)
        return fees is not None and balance < self._needed_gas * fees.max_fee_per_gas

    def note_need(self, wei: int, fees: Fees) -> None:
        """Record that the next transaction needs a balance of `wei`, reservations included."""
        self._needed_gas = -(-wei // max(1, fees.max_fee_per_gas))

    def note_mined(self, nonces: int) -> None:
        """Record that the nonces below `nonces` are mined, and their costs no longer reserved."""
        self._mined_nonces = max(self._mined_nonces, nonces)

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
        """Stop signing until the next `apply`: the node does not answer, and fees may rise."""
        self.gas_price = self.fees = None

    def can_afford(self, max_cost_wei: int, reserved_wei: int) -> bool:
        """Whether the balance covers `max_cost_wei` beside `reserved_wei` in flight."""
        if self.fees is not None:
            self.note_need(reserved_wei + max_cost_wei, self.fees)
        return self.balance is not None and self.balance >= reserved_wei + max_cost_wei

    def affordable_gas(self, fees: Fees, reserved_wei: int) -> int:
        """The gas for which the balance pays at these fees, beside `reserved_wei` in flight.

        The answer is at most what any transaction may name.
        """
        left_wei = max(0, (self.balance or 0) - reserved_wei)
        if left_wei >= TRANSACTION_GAS_CAP * fees.max_fee_per_gas:
            return TRANSACTION_GAS_CAP
        return left_wei // fees.max_fee_per_gas


async def _block_gas(view: ChainView) -> _BlockGas:
    """The block gas limit; compared with other nodes if it may keep a transaction out."""
    head = view.head
    if head.gas_limit is None or head.gas_limit >= TRANSACTION_GAS_CAP:
        return _BlockGas(head.gas_limit)
    compared = await compare_with_others(view.node, head, _BLOCK_GAS_QUESTION)
    return _BlockGas(compared.answer.gas_limit, compared.is_confirmed)


async def _other_head(other: Node) -> Header | None:
    head = await other.block("latest")
    return None if head is None or head.gas_limit is None else head


_BLOCK_GAS_QUESTION: Question[Header] = Question(
    ask=_other_head,
    leniency=lambda head: head.gas_limit,
    contradict=lambda first, second: (
        first.hash == second.hash and first.gas_limit != second.gas_limit
    ),
    kind=BLOCK_GAS,
)

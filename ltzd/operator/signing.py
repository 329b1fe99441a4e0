"""Signs all transactions of a lane, and refuses those that no node would take.

Mints, relays, replacements and self-transfers all pass here. A caller asks `obstacle` first and
decides what becomes of the work; `sign` checks again.
"""

import asyncio
from collections.abc import Coroutine, Sequence

import msgspec

from ltzd.chain.signing import UnsignedTransaction, WalletSigner
from ltzd.errors import SignerUnavailable, Unavailable
from ltzd.operator.funds import FundsTracker
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.signer_health import SignerHealth
from ltzd.rules.operator import sendable
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.l1_costs import L1Costs
from ltzd.rules.operator.sendable import TRANSACTION_GAS, Obstacle, SigningLimits
from ltzd.store.operator.transactions import Attempt
from ltzd.values import Address


class Unsendable(Unavailable):
    """No node would take the transaction, or the wallet cannot pay for it, so it is not signed."""


class TransactionCall(msgspec.Struct, frozen=True):
    """A transaction without nonce and fees; only a top-up moves native value."""

    to: Address
    data: bytes
    gas_limit: int
    is_cancellation: bool = False
    value_wei: int = 0

    def max_cost_wei(self, fees: Fees, l1_costs: L1Costs) -> int:
        """The maximum cost of the transaction, including a rollup's fee for its data."""
        l1_fee_wei = l1_costs.max_fee_wei(len(self.data), self.gas_limit)
        return self.gas_limit * fees.max_fee_per_gas + l1_fee_wei + self.value_wei


class TransactionSigner:
    """Signs for the lane's wallet, within its balance and the limits of nodes and blocks.

    `reserved_wei` is the most that everything else in flight or being signed can cost.
    """

    def __init__(
        self,
        signer: WalletSigner,
        context: LaneContext,
        funds: FundsTracker,
        health: SignerHealth,
    ) -> None:
        self._signer = signer
        self._context = context
        self._funds = funds
        self._health = health
        self._under_way: set[asyncio.Task[Attempt]] = set()

    @property
    def is_backing_off(self) -> bool:
        """Whether the signer has failed, and it is too early to ask again."""
        return self._health.is_waiting

    def spawn(self, signing: Coroutine[None, None, Attempt]) -> asyncio.Task[Attempt]:
        """Run a signing in the background, until `close` at the latest."""
        task = asyncio.create_task(signing)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def close(self) -> None:
        """Cancel the signatures under way: the term is over, and none may be stored."""
        for task in self._under_way:
            task.cancel()

    def obstacle(self, call: TransactionCall, fees: Fees, reserved_wei: int) -> Obstacle | None:
        """Why this call may not be signed now, or None if it may."""
        l1_fee_wei = self.l1_costs.max_fee_wei(len(call.data), call.gas_limit)
        self._funds.note_need(reserved_wei + call.max_cost_wei(fees, self.l1_costs), fees)
        limits = SigningLimits(
            block_gas_limit=self._funds.block_gas_limit,
            is_block_gas_confirmed=self._funds.is_block_gas_confirmed,
            fee_cap=self._context.policy.fees.cap,
            funds_wei=(self._funds.balance or 0) - reserved_wei - l1_fee_wei - call.value_wei,
        )
        return sendable.obstacle(call.gas_limit, call.data, fees, limits)

    @property
    def l1_costs(self) -> L1Costs:
        return self._funds.l1_costs

    def self_transfer(self) -> TransactionCall:
        """The cheapest transaction that uses a nonce."""
        gas_limit = TRANSACTION_GAS + self.l1_costs.extra_gas(0)
        return TransactionCall(self._context.lane.wallet, b"", gas_limit, is_cancellation=True)

    @property
    def max_gas_limit(self) -> int:
        """The highest gas limit that may be signed now."""
        return sendable.max_gas_limit(self._funds.block_gas_limit)

    async def sign(
        self, nonce: int, call: TransactionCall, fees: Fees, reserved_wei: int
    ) -> Attempt:
        """Raises Unsendable if `obstacle` names one, and SignerUnavailable."""
        (attempt,) = await self.sign_all(nonce, [call], fees, reserved_wei)
        return attempt

    async def sign_all(
        self, first_nonce: int, calls: Sequence[TransactionCall], fees: Fees, reserved_wei: int
    ) -> list[Attempt]:
        """Sign calls with consecutive nonces, all or none. Raises as `sign` does.

        A remote signer takes its time: no database transaction may be open meanwhile.
        """
        unsigned = []
        for nonce, call in enumerate(calls, start=first_nonce):
            obstacle = self.obstacle(call, fees, reserved_wei)
            if obstacle is not None:
                raise Unsendable(f"Nonce {nonce} may not be signed: {obstacle.value}")
            reserved_wei += call.max_cost_wei(fees, self.l1_costs)
            unsigned.append(self._unsigned(nonce, call, fees))
        try:
            transactions = await self._signer.sign_all(unsigned)
        except SignerUnavailable as error:
            self._health.failed(error)
            raise
        self._health.succeeded()
        return [
            Attempt(signed.hash, signed.raw, fees, call.is_cancellation)
            for call, signed in zip(calls, transactions, strict=True)
        ]

    def _unsigned(self, nonce: int, call: TransactionCall, fees: Fees) -> UnsignedTransaction:
        return UnsignedTransaction.with_fees(
            fees,
            chain_id=self._context.lane.chain_id,
            nonce=nonce,
            gas_limit=call.gas_limit,
            to=call.to,
            data=call.data,
            value=call.value_wei,
        )

"""Serves a retired or lost wallet without its key, until everything that it signed is final.

The lane publishes the stored bytes again, reads receipts and finality, and proves that a foreign
transaction, such as a thief's, has used a nonce. Work that can never be mined is queued again once
that is proven: a displaced mint, or any mint after the wallet has lost its right to mint at a final
block. Relays are never queued again: a displaced relay has failed. Any process of the role operator
may serve a retired wallet; the wallet's lease admits one at a time.
"""

import asyncio
from collections.abc import Sequence

import structlog

from ltzd.chain.node.node import Node
from ltzd.chain.signing import SignedTransaction, UnsignedTransaction
from ltzd.errors import SignerUnavailable
from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane import WalletLane
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork, OutcomeSink, RelayOutcomeSink, RewardOutcomeSink
from ltzd.operator.policy import (
    MINT,
    RELAY,
    RETIRED,
    WATCHED,
    Finished,
    InProcessHooks,
    LanePolicy,
    MintTarget,
)
from ltzd.operator.resubmission.resubmission import Resubmission
from ltzd.operator.retired.mint_rights import MintRevocation
from ltzd.operator.retired.work import RetiredResubmission, RetiredWork
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionSigner
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import lanes, transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.leases import Leases
from ltzd.store.relayer import relays
from ltzd.store.wakeups import WALLETS, WakeupHub
from ltzd.values import Address, hex_of

log = structlog.get_logger()

_CHECK_SECONDS = 1.0
NOT_SENT_BY_RETIRED = "the relay wallet that the call names is retired"


class RetiredWallet:
    """A wallet without its key."""

    def __init__(self, address: Address) -> None:
        self.address = address

    async def sign_all(self, _: Sequence[UnsignedTransaction]) -> list[SignedTransaction]:
        raise SignerUnavailable("The wallet is retired: nothing is signed for it")


class RetiredLane(WalletLane):
    """`run` returns once nothing is left to watch. `wallet_kind` is the wallet's kind."""

    kind = WATCHED
    channel = WALLETS
    signs = False

    def __init__(
        self,
        pool: Pool,
        leases: Leases,
        node: Node,
        wallet: Address,
        wallet_kind: str,
        target: MintTarget,
        wakeups: WakeupHub,
        policy: LanePolicy,
    ) -> None:
        super().__init__(
            pool, leases, node, RetiredWallet(wallet), target.chain_id, wakeups, policy
        )
        self.wallet_kind = wallet_kind
        self._target = target
        self._revocation: MintRevocation | None = None

    @property
    def is_ready(self) -> bool:
        return self.is_serving

    def _outcome_sink(self) -> OutcomeSink:
        if self.wallet_kind == MINT:
            return RewardOutcomeSink(self._wakeups, InProcessHooks())
        return RelayOutcomeSink(self._wakeups)

    async def _first_nonce(self) -> int:
        async with session(self._pool) as connection:
            return await lanes.next_nonce(connection, self._chain_id, self.wallet) or 0

    async def _check_chain(self, next_nonce: int) -> None:
        """Does nothing: a thief may have used more nonces, and no term signs."""

    async def _begin_term(self, first_nonce: int) -> tuple[Lane, int]:
        async with transaction(self._pool) as connection:
            lane = await lanes.begin_term(
                connection, self._chain_id, self.wallet, self.wallet_kind, first_nonce
            )
            if self.wallet_kind == RELAY:
                bound = await relays.bound_to(connection, self.wallet)
                await relays.refuse(connection, dict.fromkeys(bound, NOT_SENT_BY_RETIRED))
        self._revocation = None
        if self.wallet_kind == MINT:
            self._revocation = MintRevocation(
                self._pool, self._chain_id, self._target.ltz, self.wallet
            )
        return Lane(lane.chain_id, lane.wallet, lane.epoch, WATCHED), first_nonce

    async def _lane_work(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        signer: TransactionSigner,
        next_nonce: int,
    ) -> LaneWork:
        return RetiredWork(context, self._revocation)

    def _resubmission(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        signer: TransactionSigner,
        guard: SendGuard,
        work: LaneWork,
    ) -> Resubmission:
        return RetiredResubmission(context, in_flight, guard, self._revocation)

    async def _until_finished(self, lane: Lane) -> None:
        while True:
            async with session(self._pool) as connection:
                count = await transactions.count_open(connection, self._chain_id, self.wallet)
            if count == 0:
                log.info("retired.finished", wallet=hex_of(self.wallet))
                raise Finished("Everything that the retired wallet has signed is final")
            await asyncio.sleep(min(_CHECK_SECONDS, self._policy.poll_seconds))

    async def _report_status(self, lane: Lane) -> None:
        """Write the reason, but not that the lane is served: no new relay may name the wallet."""
        while True:
            async with session(self._pool) as connection:
                await lanes.report_watching(connection, lane, self.pause.reason or RETIRED)
            await self.pause.changes.wait(lanes.SHOWN_FOR_SECONDS / 6)

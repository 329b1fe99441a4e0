"""A lane: one wallet, held by one process at a time, that signs and publishes one kind of work.

A term begins with the wallet's lease and a new epoch, the fencing token that keeps the last holder
from writing. No node is needed for that. As soon as a node answers, the lane checks that nothing
else has used the wallet, publishes again what an earlier term left in flight, and then works until
the lease or the database is lost. The next term may be in this process or in another one.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import ClassVar

import structlog

from ltzd.chain.node.broadcast import Broadcast
from ltzd.chain.node.node import Node
from ltzd.chain.signing import WalletSigner
from ltzd.concurrency.outages import Outage
from ltzd.concurrency.own_task import in_own_task
from ltzd.errors import NodeUnavailable, Unavailable
from ltzd.operator.fleet import lane_gauges
from ltzd.operator.funds import FundsTracker
from ltzd.operator.handover import Handover
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_fence import LaneFence
from ltzd.operator.lane_work import LaneWork, OutcomeSink
from ltzd.operator.monitor import ReceiptMonitor
from ltzd.operator.orders import LaneOrders
from ltzd.operator.pausing import LanePause
from ltzd.operator.policy import BY_HAND, NODE, Finished, LanePolicy, Stopped
from ltzd.operator.publisher import Publisher
from ltzd.operator.refusal_backoff import RefusalBackoff
from ltzd.operator.resubmission.canceller import Canceller
from ltzd.operator.resubmission.fee_bumper import FeeBumper
from ltzd.operator.resubmission.requests import RequestedResubmission, RequestHandler
from ltzd.operator.resubmission.resubmission import Resubmission, SignedResubmission
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signer_health import SignerHealth
from ltzd.operator.signing import TransactionSigner
from ltzd.operator.wallet_nonces import used_nonces
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import lanes, transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.leases import Leases, LeaseTerm, lane_lease
from ltzd.store.wakeups import BLOCKS, WALLETS, WakeupHub
from ltzd.values import Address, hex_of

log = structlog.get_logger()

_STATUS_SECONDS = 10.0
"""Time between two writes of the lane's row. Below `lanes.SHOWN_FOR_SECONDS`, or other processes
would take the lane for dead."""
_ORDERS_SECONDS = 1.0
"""The longest delay until a person's decision about the wallet takes effect."""
_LONGEST_PAUSE_SECONDS = 2.0
"""The longest pause between two terms of a new lane while no node answers."""


class WalletLane(ABC):
    """The part that all kinds of lanes share; each kind is a subclass."""

    kind: ClassVar[str]
    channel: ClassVar[str]
    """The wake-up channel of new work."""
    signs: ClassVar[bool] = True
    """Whether the lane may ever sign new work."""

    def __init__(
        self,
        pool: Pool,
        leases: Leases,
        node: Node,
        signer: WalletSigner,
        chain_id: int,
        wakeups: WakeupHub,
        policy: LanePolicy,
    ) -> None:
        self._pool = pool
        self._leases = leases
        self._node = node
        self._signer = signer
        self._chain_id = chain_id
        self._policy = policy
        self._wakeups = wakeups
        self._due = wakeups.subscribe(self.channel)
        self._blocks = wakeups.subscribe(BLOCKS)
        self._orders_due = wakeups.subscribe(WALLETS)
        self._funds: FundsTracker | None = None
        self.pause = LanePause(self)
        self._is_serving = False
        self._term: LeaseTerm | None = None
        self.is_finished = False
        self._stopped: str | None = None
        self._fence: LaneFence | None = None
        self._terms = Outage("lane.term_over", "lane.serves_again")
        self._nodes = Outage("lane.waits_for_node", "lane.has_a_node")

    @property
    def stopped(self) -> str | None:
        """The words that tell a person what to do before this lane signs again, or None."""
        return self._stopped or (None if self._fence is None else self._fence.refusal)

    @property
    def wallet(self) -> Address:
        return self._signer.address

    @property
    def is_serving(self) -> bool:
        """Whether the lane works in a term; false once the lease is lost, before the term ends."""
        return self._is_serving and self._term is not None and not self._term.lost.is_set()

    @property
    def balance_wei(self) -> int | None:
        return None if self._funds is None else self._funds.balance

    @property
    def is_ready(self) -> bool:
        """Whether new work would be signed at once."""
        is_open = self._fence is not None and self._fence.obstacle is None
        has_fees = self._funds is not None and self._funds.fees is not None
        return self.is_serving and is_open and has_fees

    async def _begin_term(self, first_nonce: int) -> tuple[Lane, int]:
        """Increment the epoch; return the lane and its next nonce, `first_nonce` for a new lane.

        Needs a node only to create records that this kind of work lacks. Raises NodeUnavailable.
        """
        async with transaction(self._pool) as connection:
            lane = await lanes.begin_term(
                connection, self._chain_id, self.wallet, self.kind, first_nonce
            )
            next_nonce = await lanes.next_nonce(connection, self._chain_id, self.wallet)
        assert next_nonce is not None
        return lane, next_nonce

    async def _check_chain(self, next_nonce: int) -> None:
        """Check that the chain shows nothing that the database does not know.

        Raises Stopped, NodeUnavailable.
        """
        await used_nonces(self._node, self.wallet, next_nonce, self.kind)
        await self._compare_references()

    async def _compare_references(self) -> None:  # noqa: B027 - only mints use references
        """Raises Stopped if the chain has used references that the database has not given out.

        Raises NodeUnavailable.
        """

    @property
    def _record_publications_after(self) -> float:
        """The seconds before a publication is recorded; 0 for mints, whose callers wait for it."""
        return 0.0

    @abstractmethod
    def _outcome_sink(self) -> OutcomeSink: ...

    @abstractmethod
    async def _lane_work(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        signer: TransactionSigner,
        next_nonce: int,
    ) -> LaneWork: ...

    def _resubmission(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        signer: TransactionSigner,
        guard: SendGuard,
        work: LaneWork,
    ) -> Resubmission:
        return SignedResubmission(
            FeeBumper(context, in_flight, funds, signer, self._blocks),
            Canceller(context, in_flight, funds, signer, work, self._blocks),
        )

    async def _until_finished(self, lane: Lane) -> None:
        """Raise Finished once the lane has nothing left to do; most lanes always may get work."""
        await asyncio.Event().wait()

    async def run(self) -> None:
        """Serve term after term until cancelled, or finished.

        Stands by while another process has the lease.
        """
        try:
            await self._run_terms()
        finally:
            lane_gauges.remove(self)

    async def _run_terms(self) -> None:
        pauses = self._policy.pauses
        pause = pauses.between_terms
        while True:
            await in_own_task(self._run_term())
            if self.is_finished:
                return
            if self._stopped is None:
                await asyncio.sleep(pause)
                # A term without a node only takes the lease and frees it again.
                longer = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                pause = longer if self._nodes.is_on else pauses.between_terms
            else:  # A person may change the wallet's rows.
                await self._orders_due.wait(pauses.after_stop)

    async def _run_term(self) -> None:
        """Run one term: take the lease, and work until it is lost."""
        # A lane that stands by behind another process waits for nothing but the lease.
        standing_by = asyncio.get_running_loop().call_later(
            self._policy.pauses.standby, self._stand_by
        )
        try:
            async with self._leases.hold(lane_lease(self._chain_id, self.wallet)) as term:
                self._term = term
                standing_by.cancel()
                lane_gauges.LANES_HELD.set(self, 1)
                await self._serve()
        except* Stopped as group:
            self._stopped = str(group.exceptions[0])
            log.critical("lane.stopped", kind=self.kind, reason=self._stopped)
        except* NodeUnavailable as group:  # before a new lane's first term
            self.pause.set(NODE)
            self._nodes.failed(str(group.exceptions[0]), kind=self.kind)
        except* Finished:
            self.is_finished = True
        except* Unavailable as group:
            self._terms.failed(str(group.exceptions[0]), kind=self.kind)
        finally:
            standing_by.cancel()
            self._is_serving, self._term = False, None
            lane_gauges.LANES_HELD.set(self, 0)

    def _stand_by(self) -> None:
        """Forget the last term: another process serves the wallet by now."""
        self.pause.set(None)
        self._stopped, self._fence = None, None
        lane_gauges.remove(self)

    async def _serve(self) -> None:
        lane, next_nonce = await self._begin_term(await self._first_nonce())
        context = LaneContext(self._pool, self._node, lane, self._policy)
        in_flight = InFlightTransactions(
            self._pool, lane, self._outcome_sink(), self._record_publications_after
        )
        await in_flight.load()
        floor_wei = self._policy.balance_floors.get(self.kind, 0)
        self._funds = funds = FundsTracker(self._node, lane, self._policy.fees, floor_wei)
        backoff = RefusalBackoff(context.clock)
        orders = LaneOrders(lane)
        async with session(self._pool) as connection:
            await orders.refresh(connection)
            fence = LaneFence(context, self._compare_references, self._due.notify, signs=self.signs)
            await fence.load(connection)
        self._fence = fence
        health = SignerHealth(self.pause, self._policy.pauses.signer, context.clock)
        guard = SendGuard(context, in_flight, funds, self.pause, backoff, orders, health, fence)
        signer = TransactionSigner(self._signer, context, funds, health)
        work = await self._lane_work(context, in_flight, guard, signer, next_nonce)
        broadcast = Broadcast(self._node)
        publisher = Publisher(
            context, in_flight, work, guard, backoff, broadcast, self._due, self._blocks
        )
        resubmission = RequestedResubmission(
            self._resubmission(context, in_flight, funds, signer, guard, work),
            RequestHandler(context, in_flight, funds, signer, orders, self._blocks),
        )
        monitor = ReceiptMonitor(
            context, in_flight, funds, resubmission, work, guard, self._blocks, self._due
        )
        handover = Handover(context, guard)
        try:
            await self._check_before_work(lane, next_nonce, monitor, guard, handover)
            self._is_serving, self._stopped = True, None
            self._nodes.over(kind=self.kind)
            self._terms.over(kind=self.kind)
            log.info(
                "lane.serving",
                kind=self.kind,
                wallet=hex_of(lane.wallet),
                epoch=lane.epoch,
                resumed=in_flight.count(),
            )
            self._blocks.notify()
            async with broadcast, asyncio.TaskGroup() as group:
                group.create_task(in_flight.run())
                group.create_task(publisher.run())
                group.create_task(monitor.run())
                group.create_task(self._report_status(lane))
                group.create_task(self._follow_orders(orders))
                group.create_task(fence.run())
                group.create_task(handover.run())
                group.create_task(self._until_finished(lane))
        finally:
            signer.close()
            work.end_term()
            self.pause.set(None)  # The reason to wait was this term's.

    async def _first_nonce(self) -> int:
        """A new lane's first nonce; 0 for a lane that has a row. Raises NodeUnavailable."""
        async with session(self._pool) as connection:
            stored = await lanes.next_nonce(connection, self._chain_id, self.wallet)
            has_voided = await transactions.has_voided(connection, self._chain_id, self.wallet)
        if has_voided:
            raise Stopped(
                f"The {self.kind} wallet was retired and its open mints were given up, so that its "
                "nonces may have a hole: add another wallet"
            )
        if stored is not None:
            return 0
        return await used_nonces(
            self._node, self.wallet, None, self.kind, adopts=self._policy.adopts_wallets
        )

    async def _check_before_work(
        self,
        lane: Lane,
        next_nonce: int,
        monitor: ReceiptMonitor,
        guard: SendGuard,
        handover: Handover,
    ) -> None:
        """Wait for a node, and make the checks that come before anything is signed.

        Raises Stopped, HandedOver.
        """
        while True:
            try:
                await self._check_chain(next_nonce)
                # A cause that stopped the last term stops this one before it signs.
                await monitor.check_mined()
            except NodeUnavailable as error:
                self._nodes.failed(error.message, kind=self.kind)
                guard.node_failed(error)
            else:
                guard.node_answered()
                return
            async with session(self._pool) as connection:
                await lanes.report_pause(connection, lane, NODE)
            await handover.check()
            await asyncio.sleep(self._policy.pauses.between_terms)

    async def _report_status(self, lane: Lane) -> None:
        """Write into the lane's row that it is served, and its reason to wait."""
        while True:
            async with session(self._pool) as connection:
                await lanes.report_working(connection, lane, self.pause.reason)
            await asyncio.sleep(self._policy.pauses.status)
            await self.pause.changes.wait(_STATUS_SECONDS)

    async def _follow_orders(self, orders: LaneOrders) -> None:
        """Put people's decisions about the wallet in force, within a second."""
        while True:
            await self._orders_due.wait(_ORDERS_SECONDS)
            before = orders.obstacle
            async with session(self._pool) as connection:
                await orders.refresh(connection)
            if orders.obstacle != before:
                if orders.obstacle == BY_HAND:
                    self.pause.set(BY_HAND)  # Also while the publisher is busy with the node.
                self._due.notify()
            if orders.has_requests:
                self._blocks.notify()

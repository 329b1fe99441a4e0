"""The mint lane: mints queued rewards, each reference once."""

from ltzd.chain.node.node import Node
from ltzd.chain.node.view import ChainView
from ltzd.chain.signing import WalletSigner
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane import WalletLane
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork, OutcomeSink, RewardOutcomeSink
from ltzd.operator.mints import references
from ltzd.operator.mints.gas import MintGas
from ltzd.operator.mints.signer import MintCounters, MintSigner
from ltzd.operator.mints.simulation import MintSimulator
from ltzd.operator.policy import MINT, InProcessHooks, LanePolicy, MintTarget
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionSigner
from ltzd.rules.operator.references import LaneReferences
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import lanes, rewards, transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import REWARDS, WakeupHub


class MintLane(WalletLane):
    kind = MINT
    channel = REWARDS

    def __init__(
        self,
        pool: Pool,
        leases: Leases,
        node: Node,
        signer: WalletSigner,
        target: MintTarget,
        wakeups: WakeupHub,
        policy: LanePolicy,
        hooks: InProcessHooks | None = None,
    ) -> None:
        super().__init__(pool, leases, node, signer, target.chain_id, wakeups, policy)
        self._target = target
        self._hooks = hooks or InProcessHooks()
        self._references = LaneReferences()

    def _outcome_sink(self) -> OutcomeSink:
        return RewardOutcomeSink(self._wakeups, self._hooks)

    async def _lane_work(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        signer: TransactionSigner,
        next_nonce: int,
    ) -> LaneWork:
        async with session(self._pool) as connection:
            has_reverted = await transactions.has_reverted(connection, context.lane)
            ran_out_of_gas = await transactions.has_run_out_of_gas(connection, context.lane)
            last_brand = await rewards.last_brand(connection, self._references.next_seq)
        gas = MintGas(context, self._target, signer)
        simulator = MintSimulator(context, self._target, gas, must_simulate=has_reverted)
        counters = MintCounters(next_nonce, self._references, last_brand, ran_out_of_gas)
        return MintSigner(
            context, in_flight, guard, signer, self._target, simulator, counters, self._hooks
        )

    async def _begin_term(self, first_nonce: int) -> tuple[Lane, int]:
        wallet, target = self._signer.address, self._target
        async with session(self._pool) as connection:
            counter = await lanes.next_seq(connection, target.chain_id, target.ltz)
        first_seq = await self._first_seq() if counter is None else counter
        async with transaction(self._pool) as connection:
            await lanes.create_counter(connection, target.chain_id, target.ltz, first_seq)
            lane = await lanes.begin_term(
                connection, target.chain_id, wallet, self.kind, first_nonce
            )
            next_nonce = await lanes.next_nonce(connection, target.chain_id, wallet)
            self._references = await lanes.references(connection, target.chain_id, wallet)
        assert next_nonce is not None
        return lane, next_nonce

    async def _first_seq(self) -> int:
        """The first seq of a new database: above every reference that LTZ has used."""
        view = await ChainView.newest(self._node)
        return await references.first_free_seq(view, self._target.ltz)

    async def _compare_references(self) -> None:
        """Check all references at or above the counter, and the rest of the lane's own words
        (docs/contracts.md, refWord).
        """
        target = self._target
        # Read before the rows: other lanes store each reference before LTZ can mint it.
        view = await ChainView.newest(self._node)
        async with session(self._pool) as connection:
            counter = await lanes.next_seq(connection, target.chain_id, target.ltz)
            held = await lanes.references(connection, target.chain_id, self.wallet)
        assert counter is not None, "the term began with a counter"
        await references.check_references(view, target.ltz, counter, held)

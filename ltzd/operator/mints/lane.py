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
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import lanes, rewards, transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.wakeups import REWARDS, WakeupHub


class MintLane(WalletLane):
    kind = MINT
    channel = REWARDS

    def __init__(
        self,
        pool: Pool,
        database_url: str,
        node: Node,
        signer: WalletSigner,
        target: MintTarget,
        wakeups: WakeupHub,
        policy: LanePolicy,
        hooks: InProcessHooks | None = None,
    ) -> None:
        super().__init__(pool, database_url, node, signer, target.chain_id, wakeups, policy)
        self._target = target
        self._hooks = hooks or InProcessHooks()
        self._next_seq = 0

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
            last_brand = await rewards.last_brand(connection, self._next_seq)
        gas = MintGas(context, self._target, signer)
        simulator = MintSimulator(context, self._target, gas, must_simulate=has_reverted)
        counters = MintCounters(next_nonce, self._next_seq, last_brand)
        return MintSigner(
            context, in_flight, guard, signer, self._target, simulator, counters, self._hooks
        )

    async def _begin_term(self, used: int) -> tuple[Lane, int]:
        """Check the references against the chain, then count the epoch up."""
        wallet, target = self._signer.address, self._target
        async with session(self._pool) as connection:
            seq = await lanes.next_seq(connection, target.chain_id, target.ltz)
        first_seq = await self._check_references(seq)
        async with transaction(self._pool) as connection:
            await lanes.create_counter(connection, target.chain_id, target.ltz, first_seq)
            lane = await lanes.begin_term(connection, target.chain_id, wallet, self.kind, used)
            next_nonce = await lanes.next_nonce(connection, target.chain_id, wallet)
            next_seq = await lanes.next_seq(connection, target.chain_id, target.ltz)
        assert next_nonce is not None
        assert next_seq is not None
        self._next_seq = next_seq
        return lane, next_nonce

    async def _check_references(self, next_seq: int | None) -> int:
        """The counter, after a check that no reference at or above it is used (contracts.md).

        Without a counter (a new database on a used LTZ) counting begins above every used reference.
        """
        view = await ChainView.newest(self._node)
        if next_seq is None:
            return await references.first_free_seq(view, self._target.ltz)
        await references.check_references(view, self._target.ltz, next_seq)
        return next_seq

    async def _compare_references(self) -> None:
        async with session(self._pool) as connection:
            seq = await lanes.next_seq(connection, self._target.chain_id, self._target.ltz)
        await self._check_references(seq)

"""Turns queued rewards into a signed mint: intent, nonce and bytes in one database transaction."""

import itertools
from collections.abc import Sequence
from uuid import UUID

import structlog

from ltzd import telemetry
from ltzd.chain import ltz
from ltzd.chain.node import Node
from ltzd.chain.rpc import RpcError
from ltzd.chain.signing import Signer, Unsigned
from ltzd.operator.book import Book
from ltzd.operator.policy import MINT, LanePolicy, MintTarget
from ltzd.operator.purse import Purse
from ltzd.rules.fees import Fees
from ltzd.rules.transactions import State, Transaction
from ltzd.store import lanes, rewards, transactions
from ltzd.store.database import Connection, Pool, transaction
from ltzd.store.lanes import Lane
from ltzd.store.rewards import QueuedReward
from ltzd.store.transactions import Attempt, Intent, OpenTransaction
from ltzd.values import LTZ, reward_reference

log = structlog.get_logger()


class Minter:
    def __init__(
        self,
        pool: Pool,
        lane: Lane,
        target: MintTarget,
        signer: Signer,
        node: Node,
        book: Book,
        purse: Purse,
        policy: LanePolicy,
    ) -> None:
        self._pool = pool
        self._lane = lane
        self._target = target
        self._signer = signer
        self._node = node
        self._book = book
        self._purse = purse
        self._policy = policy
        self.is_careful = False
        """After a mint reverted, each batch is simulated first, until one passes."""

    async def sign_next(self) -> bool:
        """Sign and store the next batch; False when nothing waits or the lane may not send now.

        Raises LostLane, DatabaseUnavailable, NodeUnavailable; nothing is spent then.
        """
        fees = self._purse.fees
        if fees is None or self._book.count() >= self._policy.max_in_flight:
            return False
        if not self._purse.can_afford(ltz.mint_gas_limit(ltz.MAX_BATCH), self._book.reserved_wei()):
            log.warning("lane.paused", reason="balance")
            return False
        if self.is_careful and await self._would_revert():
            return False
        async with transaction(self._pool) as connection:
            batch = await rewards.take_queued(connection, ltz.MAX_BATCH)
            if not batch:
                return False
            tx = await self._store(connection, batch, fees)
        self._book.add(tx)
        telemetry.BATCH_REWARDS.observe(len(batch))
        telemetry.TRANSACTIONS_CREATED.labels(MINT).inc()
        return True

    async def _store(
        self, connection: Connection, batch: Sequence[QueuedReward], fees: Fees
    ) -> OpenTransaction:
        nonce = await lanes.reserve_nonce(connection, self._lane)
        seqs = await self._seqs(connection, batch)
        data = ltz.mint_call(_mints(batch, seqs))
        gas_limit = ltz.mint_gas_limit(len(batch))
        signed = self._signer.sign(
            Unsigned(
                chain_id=self._target.chain_id,
                nonce=nonce,
                max_priority_fee_per_gas=fees.max_priority_fee_per_gas,
                max_fee_per_gas=fees.max_fee_per_gas,
                gas_limit=gas_limit,
                to=self._target.ltz,
                value=0,
                data=data,
            )
        )
        ids: list[UUID] = [reward.id for reward in batch]
        intent = Intent(nonce, self._target.ltz, data, gas_limit, ids, seqs)
        attempt = Attempt(signed.hash, signed.raw, fees)
        row_id, created_at = await transactions.store_signed(
            connection, self._lane, intent, attempt
        )
        return OpenTransaction(
            id=row_id,
            nonce=nonce,
            gas_limit=gas_limit,
            max_fee_per_gas=fees.max_fee_per_gas,
            tx=Transaction(State.SIGNED),
            hashes=(signed.hash,),
            raw=signed.raw,
            created_at=created_at,
        )

    async def _seqs(self, connection: Connection, batch: Sequence[QueuedReward]) -> list[int]:
        missing = sum(reward.seq is None for reward in batch)
        if not missing:
            return _numbered(batch, 0)
        return _numbered(
            batch,
            await lanes.reserve_seqs(connection, self._target.chain_id, self._target.ltz, missing),
        )

    async def _would_revert(self) -> bool:
        """Simulate the next batch; the seqs that it would take are read, not taken."""
        async with transaction(self._pool) as connection:
            batch = await rewards.take_queued(connection, ltz.MAX_BATCH)
            first = await lanes.next_seq(connection, self._target.chain_id, self._target.ltz) or 0
        if not batch:
            return False
        seqs = _numbered(batch, first)
        try:
            await self._node.view(
                self._target.ltz, ltz.mint_call(_mints(batch, seqs)), self._signer.address
            )
        except RpcError as error:
            log.error("mint.would_revert", reason=error.message, data=(error.data or b"").hex())
            return True
        self.is_careful = False
        return False


def _numbered(batch: Sequence[QueuedReward], first: int) -> list[int]:
    """Each reward's seq: the one it has for ever, or the next from `first` on."""
    fresh = itertools.count(first)
    return [next(fresh) if reward.seq is None else reward.seq for reward in batch]


def _mints(batch: Sequence[QueuedReward], seqs: Sequence[int]) -> list[ltz.Reward]:
    return [
        ltz.Reward(reward.wallet, reward.ltz * LTZ, reward_reference(reward.id, reward.kind, seq))
        for reward, seq in zip(batch, seqs, strict=True)
    ]

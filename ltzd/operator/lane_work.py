"""The parts in which the kinds of lanes differ: their work and its outcomes.

`LaneWork` signs queued work. `OutcomeSink` passes the outcomes of a lane's transactions to the
records that wait for them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from uuid import UUID

import structlog

from ltzd.chain.node.view import ChainView
from ltzd.operator.policy import InProcessHooks
from ltzd.rules.operator.mint_gas import ran_out_of_gas
from ltzd.rules.operator.transactions import Effect, Inclusion, State
from ltzd.store.database import Connection
from ltzd.store.operator import lost_mints, requests, rewards
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.store.relayer import relays
from ltzd.store.wakeups import PUBLISHED, RELAYED, RELAYS, REWARDS, WakeupHub

log = structlog.get_logger()

_QUEUING = frozenset({Effect.REQUEUE, Effect.RENEW})

StateChange = tuple[OpenTransaction, list[Effect]]
"""A transaction in its new state, and the effects that the change asks for."""


class LaneWork(ABC):
    """A kind of work overrides what it does not share with most kinds."""

    max_batch = 1
    """The most items that one `sign_next` takes."""
    sufficient_batch = 1
    """The number of waiting items that are signed without delay; fewer may wait for more."""

    @property
    def waits_for_block(self) -> bool:
        """Whether a new block may let items be signed although nothing pauses the lane."""
        return False

    @property
    def has_emptied_queue(self) -> bool:
        """Whether the last `sign_next` has left nothing that the lane could sign before more work
        is announced."""
        return False

    @abstractmethod
    async def sign_next(self, at_least: int = 1) -> int:
        """Sign and store waiting items; return how many, items that may never be signed included.

        Returns 0 if fewer than `at_least` wait, or if the lane may not send now. Raises LaneLost,
        DatabaseUnavailable, NodeUnavailable; no nonce is used then.
        """

    def expected_items(self) -> int:
        """How many items are likely to be queued soon."""
        return 0

    def end_term(self) -> None:  # noqa: B027 - few kinds have anything to end
        """End what lasts as long as the lane's term."""

    @abstractmethod
    async def refresh(self, view: ChainView) -> None:
        """Read the chain's limits of this work as of a view. Raises NodeUnavailable.

        Called for each new block, and before mined transactions leave those in flight. Sets all
        values at once, after the last read.
        """

    async def indexed_inclusions(self) -> Mapping[int, Inclusion]:
        """Transactions in flight whose block the indexer has read, by nonce.

        Returns none where only a receipt tells enough.
        """
        return {}

    def on_reverted(  # noqa: B027 - few kinds act on it, as on the next
        self, tx: OpenTransaction, inclusion: Inclusion
    ) -> None:
        """Called when a transaction was mined and has reverted, before that is saved."""

    def on_abandoned(self, tx: OpenTransaction) -> None:  # noqa: B027
        """Called when nodes refuse a call for good, and a self-transfer takes its nonce."""


class OutcomeSink:
    """Does nothing; a subclass overrides the methods whose outcomes its records wait for."""

    async def save(self, connection: Connection, changes: Sequence[StateChange]) -> None:
        """Update the waiting records, in the database transaction of the changes."""

    def notify(self, changes: Sequence[StateChange]) -> None:
        """Wake the waiters of this process, after the commit."""

    def on_published(self, transactions: Sequence[OpenTransaction]) -> None:
        """Called when a node holds these transactions and their rows record it."""


class RewardOutcomeSink(OutcomeSink):
    """Puts the rewards of a failed or cancelled mint back into the queue."""

    def __init__(self, wakeups: WakeupHub, hooks: InProcessHooks) -> None:
        self._wakeups = wakeups
        self._hooks = hooks

    async def save(self, connection: Connection, changes: Sequence[StateChange]) -> None:
        for tx, effects in changes:
            suspects = await _suspects(connection, tx, effects)
            if Effect.REQUEUE in effects:
                # A batch that a person cancelled may be signed again as it is.
                is_refused = tx.tx.state is State.CANCELLED and not (
                    await requests.is_cancelled_by_hand(connection, tx.id)
                )
                await rewards.requeue(
                    connection,
                    tx.id,
                    is_cancelled=is_refused,
                    ran_out_of_gas=_ran_out_of_gas(tx),
                )
            if Effect.RENEW in effects:
                renewed = await rewards.renew_skipped(connection, tx.id)
                log.critical("mint.references_stolen", transaction=tx.id, rewards=renewed)
            if suspects:
                # Other bytes with the wallet's key were mined: they may have minted the rewards.
                await lost_mints.link_rewards(connection, suspects)

    def notify(self, changes: Sequence[StateChange]) -> None:
        if any(not _QUEUING.isdisjoint(effects) for _, effects in changes):
            self._wakeups.notify(REWARDS)

    def on_published(self, transactions: Sequence[OpenTransaction]) -> None:
        for tx in transactions:
            if tx.hashes[0] not in tx.cancellations:
                self._hooks.on_published(tx.rewards, tx.hashes[0])
        if not all(tx.rewards for tx in transactions):
            self._wakeups.notify(PUBLISHED)


async def _suspects(
    connection: Connection, tx: OpenTransaction, effects: Sequence[Effect]
) -> Sequence[UUID]:
    """The rewards that lost commits, or another signer, may have minted under other references."""
    is_displaced = tx.tx.state is State.DISPLACED and Effect.REQUEUE in effects
    if not is_displaced and Effect.RENEW not in effects:
        return ()
    return await rewards.unminted_of(connection, tx.id)


class RelayOutcomeSink(OutcomeSink):
    """Ends relays. A relay that failed is not sent again: its simulation no longer holds.

    Publications are not announced: the waiters of a relay wait for its block.
    """

    def __init__(self, wakeups: WakeupHub) -> None:
        self._wakeups = wakeups
        self._has_followers = False

    async def save(self, connection: Connection, changes: Sequence[StateChange]) -> None:
        self._has_followers = await relays.follow(connection, [tx.id for tx, _ in changes])

    def notify(self, changes: Sequence[StateChange]) -> None:
        """Wake the lanes, too, if relays of the same users wait behind."""
        if changes:
            self._wakeups.notify(RELAYED)
        if self._has_followers:
            self._wakeups.notify(RELAYS)


def _ran_out_of_gas(tx: OpenTransaction) -> bool:
    inclusion = tx.tx.inclusion
    if tx.tx.state is not State.REVERTED or inclusion is None or inclusion.gas_cost is None:
        return False
    return ran_out_of_gas(inclusion.gas_cost.gas_used, tx.gas_limit)

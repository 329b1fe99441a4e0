"""What a lane's nonces are spent on: the part in which mints and relays differ.

`Work` signs what is due; `Rows` are the records that wait for the outcome of a lane's transactions.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ltzd.operator.policy import InProcessHooks
from ltzd.rules.operator.transactions import Effect, Inclusion, State
from ltzd.store.database import Connection
from ltzd.store.operator import rewards
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.store.relayer import relays
from ltzd.store.wakeups import PUBLISHED, RELAYED, REWARDS, WakeupHub

StateChange = tuple[OpenTransaction, list[Effect]]
"""A transaction as it is now, and what that asks for."""


class LaneWork(Protocol):
    largest: int
    """How much one signing takes at most."""
    enough: int
    """How much gathers no longer."""

    async def sign_next(self, at_least: int = 1) -> int:
        """Sign and store what is due; answers how much that is, with what may never be signed.

        0 when less than `at_least` waits, or the lane may not send now. Raises LaneLost,
        DatabaseUnavailable, NodeUnavailable; nothing is spent then.
        """
        ...

    def on_the_way(self) -> int:
        """How much is likely to be due soon."""
        ...

    def leave(self) -> None:
        """The term is over: whatever held the lane no longer does so here."""
        ...

    async def look(self) -> None:
        """Once a block, and before what was mined leaves the book. Raises NodeUnavailable."""
        ...

    async def seen(self) -> Mapping[int, Inclusion]:
        """Transactions in flight that the indexer has shown to be mined, by nonce."""
        ...

    def reverted(self) -> None:
        """A transaction of the lane was mined, and failed."""
        ...

    def abandoned(self, tx: OpenTransaction) -> None:
        """Nodes refuse this transaction's bytes for good: a self-transfer takes its nonce."""
        ...


class OutcomeSink(Protocol):
    async def follow(self, connection: Connection, moved: Sequence[StateChange]) -> None:
        """What the moves mean for the records, in their commit."""
        ...

    def tell(self, moved: Sequence[StateChange]) -> None:
        """Wake who waits in this process, after the commit."""
        ...

    def published(self, those: Sequence[OpenTransaction]) -> None:
        """A node holds these, and the rows say so."""
        ...


class RewardOutcomes:
    """The rewards of a failed or cancelled mint go back to the queue."""

    def __init__(self, wakeups: WakeupHub, process: InProcessHooks) -> None:
        self._wakeups = wakeups
        self._process = process

    async def follow(self, connection: Connection, moved: Sequence[StateChange]) -> None:
        for tx, effects in moved:
            if Effect.REQUEUE in effects:
                is_cancelled = tx.tx.state is State.CANCELLED
                await rewards.requeue(connection, tx.id, is_cancelled=is_cancelled)

    def tell(self, moved: Sequence[StateChange]) -> None:
        if any(Effect.REQUEUE in effects for _, effects in moved):
            self._wakeups.notify(REWARDS)

    def published(self, those: Sequence[OpenTransaction]) -> None:
        for tx in those:
            if tx.hashes[0] not in tx.cancellations:
                self._process.on_published(tx.rewards, tx.hashes[0])
        if not all(tx.rewards for tx in those):
            self._wakeups.notify(PUBLISHED)


class RelayOutcomes:
    """A relay that failed is over: nobody has simulated it against the chain of now."""

    def __init__(self, wakeups: WakeupHub) -> None:
        self._wakeups = wakeups

    async def follow(self, connection: Connection, moved: Sequence[StateChange]) -> None:
        await relays.follow(connection, [tx.id for tx, _ in moved])

    def tell(self, moved: Sequence[StateChange]) -> None:
        if moved:
            self._wakeups.notify(RELAYED)

    def published(self, those: Sequence[OpenTransaction]) -> None:
        """Who waits for a relay waits for its block."""

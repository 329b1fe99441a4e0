"""Waits for an admitted relay and returns its outcome."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from msgspec.structs import replace

from ltzd.actions.relayer.context import RelayContext
from ltzd.errors import (
    DatabaseUnavailable,
    NoConnection,
    OutcomeUnknown,
    RelayPending,
    TransactionFailed,
    Unavailable,
)
from ltzd.rules.relayer.calls import RelayProgress, RelayStatus
from ltzd.store.database import Pool, session
from ltzd.store.operator import requests
from ltzd.store.relayer import relays
from ltzd.store.wakeups import RELAYS
from ltzd.values import hex_of

log = structlog.get_logger()

REFUSED_BY_THE_NETWORK = "the network refused the transaction"
CANCELLED_BY_HAND = "the operator cancelled the transaction"
NOT_SENT_IN_TIME = "No relay wallet could send the transaction in time"


@contextmanager
def unknown_without_database(*, is_stored: bool) -> Iterator[None]:
    """Raise OutcomeUnknown if the block, which stores a call or reads a stored one, fails for want
    of the database.

    A commit whose answer is lost may have stored the call, and a lane sends every stored call. A
    block that stores the call and gets no connection has stored nothing: raises NoConnection.
    """
    try:
        yield
    except DatabaseUnavailable as error:
        if isinstance(error, NoConnection) and not is_stored:
            raise
        raise OutcomeUnknown(f"The call may be stored: {error.message}") from error


class RelayOutcomes:
    def __init__(self, context: RelayContext) -> None:
        self._pool = context.pool
        self._wakeups = context.wakeups
        self._waiters = context.waiters
        self._simulator = context.simulator

    async def wait(
        self, relay_id: int, deadline: float, *, is_new: bool = False
    ) -> RelayProgress | None:
        """Return the relay once it is settled, or as far as it has come by the deadline.

        Returns None for a relay that was withdrawn. Raises TransactionFailed for one that was never
        sent because it would revert, RelayPending for one that is signed but that no node has
        taken: it has no hash yet, and OutcomeUnknown if the database does not tell.
        """
        if not is_new:
            self._waiters.poll()
        relay = await self._waiters.settled(relay_id, deadline)
        if relay is None:
            with unknown_without_database(is_stored=True):
                relay = await self._withdraw_or_read(relay_id)
        if relay is None:
            return None
        if relay.transaction_hash is None:
            if relay.status is RelayStatus.FAILED:
                raise TransactionFailed(
                    f"Transaction would fail: {relay.reason}", reason=relay.reason
                )
            raise RelayPending("No node has accepted the transaction yet")
        return await self.with_reason(relay)

    async def _withdraw_or_read(self, relay_id: int) -> RelayProgress | None:
        """Take back a relay that no lane has signed by its deadline; read a signed one.

        Any caller that waits for the relay may do this: the first one may be gone. For a relay that
        is taken back, raises ValidationFailed if the gas price is above the cap, and Unavailable
        otherwise.
        """
        async with session(self._pool) as connection:
            if not await relays.withdraw(connection, relay_id):
                return (await relays.progress(connection, [relay_id])).get(relay_id)
        self._wakeups.notify(RELAYS)
        log.warning("relay.withdrawn", relay=relay_id)
        await self._simulator.fees()
        raise Unavailable(NOT_SENT_IN_TIME)

    async def with_reason(self, relay: RelayProgress) -> RelayProgress:
        """Add the reason to a relay that failed on chain."""
        if relay.status is not RelayStatus.FAILED:
            return relay
        if relay.is_cancelled:
            return replace(relay, reason=await cancellation_reason(self._pool, relay))
        if relay.block_number is None or relay.sender is None:
            return replace(relay, reason="its nonce was used by another transaction")
        reason = await self._simulator.failure_reason(
            relay.to, relay.data, relay.sender, relay.block_number
        )
        return replace(relay, reason=reason)


async def cancellation_reason(pool: Pool, relay: RelayProgress) -> str:
    """Why a self-transfer has used the nonce of the relay's transaction."""
    async with session(pool) as connection:
        is_by_hand = await requests.is_relay_cancelled_by_hand(connection, relay.id)
    return CANCELLED_BY_HAND if is_by_hand else REFUSED_BY_THE_NETWORK


def failure_of(relay: RelayProgress) -> TransactionFailed:
    """The error that a caller gets for a relay that failed on chain."""
    assert relay.transaction_hash is not None, "it was sent"
    return TransactionFailed(
        f"Transaction failed: {relay.reason}",
        reason=relay.reason,
        transactionHash=hex_of(relay.transaction_hash),
        blockNumber=relay.block_number,
    )

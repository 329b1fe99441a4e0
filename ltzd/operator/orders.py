"""The decisions of people about a lane's wallet, read once a second and on wake-ups."""

import structlog

from ltzd.operator.policy import BY_HAND, DRAINING
from ltzd.store.database import Connection
from ltzd.store.operator import wallets
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.wallets import WalletState

log = structlog.get_logger()


class LaneOrders:
    """`obstacle` is the reason why no new work may be signed, or None if it may.

    `has_requests`: a person asks something of a transaction of the wallet.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.obstacle: str | None = None
        self.state = WalletState.ACTIVE
        self.has_requests = False

    async def refresh(self, connection: Connection) -> None:
        """Read the wallet's row; a wallet without a row is active."""
        lane = self._lane
        row, self.has_requests = await wallets.find_with_requests(
            connection, lane.chain_id, lane.wallet
        )
        state = WalletState.ACTIVE if row is None else row.state
        is_paused = row is not None and row.paused_at is not None
        before = self.obstacle
        if is_paused and state is not WalletState.RETIRED:
            self.obstacle = BY_HAND
        else:
            self.obstacle = None if state is WalletState.ACTIVE else DRAINING
        self.state = state
        if self.obstacle != before:
            log.info("lane.orders", kind=lane.kind, state=state.value, obstacle=self.obstacle)

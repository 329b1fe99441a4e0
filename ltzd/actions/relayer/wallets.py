"""The active relay wallets whose lanes are being served, by any process.

Calls are simulated with one of them as the sender, and a permit may name one as its spender.
"""

from ltzd.concurrency.cached_value import CachedValue
from ltzd.errors import Unavailable
from ltzd.store.database import Pool, session
from ltzd.store.operator import lanes
from ltzd.values import Address

KIND = "relay"


class RelayWallets:
    def __init__(self, pool: Pool, chain_id: int) -> None:
        self._pool = pool
        self._chain_id = chain_id
        self._wallets = CachedValue(self._read)

    def prefetch(self) -> None:
        """Start reading the wallets, for a call of `all` or `first` that will follow."""
        self._wallets.prefetch()

    async def all(self) -> list[Address]:
        return await self._wallets.get()

    async def first(self) -> Address:
        """Raises Unavailable while no relay wallet is served."""
        wallets = await self.all()
        if not wallets:
            raise Unavailable("No relay wallet is being served")
        return wallets[0]

    async def _read(self) -> list[Address]:
        async with session(self._pool) as connection:
            return await lanes.list_served(connection, self._chain_id, KIND)

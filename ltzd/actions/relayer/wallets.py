"""Which relay wallets somebody serves now: simulations are theirs, and permits may name them."""

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
        self._wallets = CachedValue(self._working)

    def prepare(self) -> None:
        """Begin to ask for what `all` and `first` tell."""
        self._wallets.prepare()

    async def all(self) -> list[Address]:
        return await self._wallets.now()

    async def first(self) -> Address:
        """Raises Unavailable while nobody serves any."""
        wallets = await self.all()
        if not wallets:
            raise Unavailable("No relay wallet is being served")
        return wallets[0]

    async def _working(self) -> list[Address]:
        async with session(self._pool) as connection:
            return await lanes.list_served(connection, self._chain_id, KIND)

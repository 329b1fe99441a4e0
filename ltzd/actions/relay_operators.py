"""Which relay wallets somebody serves now: simulations are theirs, and permits may name them."""

import asyncio

from ltzd.errors import Unavailable
from ltzd.store import lanes
from ltzd.store.database import Pool, session
from ltzd.values import Address

KIND = "relay"
_FRESH_SECONDS = 1.0


class RelayOperators:
    """A second old at most."""

    def __init__(self, pool: Pool, chain_id: int) -> None:
        self._pool = pool
        self._chain_id = chain_id
        self._wallets: list[Address] = []
        self._asked_at = float("-inf")

    async def all(self) -> list[Address]:
        now = asyncio.get_running_loop().time()
        if not self._wallets or now - self._asked_at > _FRESH_SECONDS:
            async with session(self._pool) as connection:
                self._wallets = await lanes.working(connection, self._chain_id, KIND)
            self._asked_at = now
        return self._wallets

    async def first(self) -> Address:
        """Raises Unavailable while nobody serves any."""
        wallets = await self.all()
        if not wallets:
            raise Unavailable("No relay wallet is being served")
        return wallets[0]

"""The relay wallets whose lanes are being served, by any process.

Calls are simulated with one of them as the sender, and a permit may name one as its spender.
"""

from ltzd.concurrency.cached_value import CachedValue
from ltzd.errors import Unavailable
from ltzd.store.database import Pool, session
from ltzd.store.operator import wallets
from ltzd.store.operator.wallets import ServedWallet
from ltzd.values import Address

KIND = "relay"


class RelayWallets:
    """As of at most two seconds ago."""

    def __init__(self, pool: Pool, chain_id: int) -> None:
        self._pool = pool
        self._chain_id = chain_id
        self._served = CachedValue(self._read)

    def prefetch(self) -> None:
        """Start reading the wallets, for a call of another method that will follow."""
        self._served.prefetch()

    async def keep_fresh(self) -> None:
        """Read the wallets in the background while callers use them, until cancelled."""
        await self._served.keep_fresh()

    async def offered(self) -> list[Address]:
        """The wallets that take new work: a new permit should name one of them."""
        served = await self._served.get()
        return [
            each.wallet
            for each in served
            if not each.is_draining and not each.is_paused and not each.lacks_role
        ]

    async def accepted(self) -> list[Address]:
        """The wallets that a relay may name: also a draining one, until it is retired, and a paused
        one, which may resume.
        """
        return [each.wallet for each in await self._served.get()]

    async def sender(self) -> Address:
        """A wallet to simulate calls with: one that takes new work, or else one that may resume.

        Raises Unavailable if there is neither. A wallet that lacks its roles would make calls
        revert that succeed once it has them.
        """
        served = [each for each in await self._served.get() if not each.is_draining]
        if not served:
            raise Unavailable("No process serves a relay wallet")
        able = [each for each in served if not each.lacks_role]
        if not able:
            raise Unavailable("Every relay wallet lacks a role on chain")
        return min(able, key=lambda each: each.is_paused).wallet

    async def _read(self) -> list[ServedWallet]:
        async with session(self._pool) as connection:
            return await wallets.list_served(connection, self._chain_id, KIND)

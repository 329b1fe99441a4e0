"""A database pool whose process dies before a given use: between any two database transactions."""

from typing import Any, cast

from ltzd.store.database import Connection, Pool


class Killed(Exception):
    pass


class Life:
    """Counts the uses of all pools of one process, which dies before the one after `uses`."""

    def __init__(self, uses: int) -> None:
        self.left = uses

    def spend(self) -> None:
        if self.left <= 0:
            raise Killed
        self.left -= 1


class _MortalPool:
    def __init__(self, pool: Pool, life: Life) -> None:
        self._pool = pool
        self._life = life

    async def take(self) -> Connection:
        self._life.spend()
        return await self._pool.take()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


def mortal(pool: Pool, life: Life) -> Pool:
    return cast("Pool", _MortalPool(pool, life))

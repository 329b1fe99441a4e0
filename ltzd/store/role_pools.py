"""The database connections of one process: a pool for each role, and a small one beside them.

Requests of HTTP can hold all connections of their own pool and none of another one, so lanes,
indexer and deliveries continue. Leases and LISTEN have connections outside the pools. Where there
is a pooler (`pooler.py`), the pools of `rules.database_connections.pooled_pools` use it.
"""

from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager

import msgspec
from msgspec.structs import fields

from ltzd import telemetry
from ltzd.rules.database_connections import PoolPolicy, pooled_pools
from ltzd.store import database, durability, pooler
from ltzd.store.database import Pool
from ltzd.store.pooler import IDLE_TIMEOUT, PoolerUrl

SESSION_SETTINGS = IDLE_TIMEOUT
"""The settings of every session that ltzd works in, inside and outside of pools."""
_MOST_OF_OPERATOR = 1_000
"""The most connections of the role operator, whose pool grows with its lanes."""
_FRESH_CONNECTIONS = 2


class RolePools(msgspec.Struct, frozen=True):
    """`admin` serves the admin port, the health endpoints and the loops that every process has.

    `replica` leads to a standby (`replica.py`), if there is one and the process runs HTTP.
    """

    http: Pool
    operator: Pool
    indexer: Pool
    deliveries: Pool
    admin: Pool
    replica: Pool | None = None

    def each(self) -> Iterator[tuple[str, Pool]]:
        """The pools that there are, with their names."""
        for field in fields(self):
            pool: Pool | None = getattr(self, field.name)
            if pool is not None:
                yield field.name, pool

    @property
    def disk_full(self) -> str | None:
        """The primary's words for its full disk, if it has said so in the last seconds."""
        words = (pool.disk_full for name, pool in self.each() if name != "replica")
        return next(filter(None, words), None)

    def measure(self) -> None:
        """Set the gauges of the pools."""
        for name, pool in self.each():
            telemetry.POOL_CONNECTIONS_IN_USE.labels(name).set(pool.in_use)
            telemetry.POOL_CONNECTIONS_LIMIT.labels(name).set(pool.limit)


@asynccontextmanager
async def open_role_pools(
    url: str,
    roles: Collection[str],
    policy: PoolPolicy,
    *,
    pooled_url: PoolerUrl | None = None,
    replica_url: str | None = None,
    must_be_durable: bool = False,
) -> AsyncIterator[RolePools]:
    """The pools; only that of HTTP has connections from the start, if the process runs HTTP.

    At the end of the block the connections are dropped at once: every loop has ended, and a lost
    server must not delay the end. With `must_be_durable` no session is used whose commits a
    crash of the server may lose. Raises DatabaseUnavailable, Misconfigured.
    """
    pooled = frozenset() if pooled_url is None else pooled_pools(roles)

    async def opened(
        role: str, wait_seconds: float, at_start: int = 0, ceiling: int | None = None
    ) -> Pool:
        return await database.open_pool(
            pooled_url if pooled_url is not None and role in pooled else url,
            name=f"ltzd {role}",
            size=getattr(policy, role),
            ceiling=ceiling,
            open_at_start=at_start,
            wait_seconds=wait_seconds,
            settings=SESSION_SETTINGS,
            check=durability.require if must_be_durable else None,
        )

    pools = RolePools(
        http=await opened("http", policy.http_wait_seconds, 2 if "http" in roles else 0),
        operator=await opened("operator", policy.role_wait_seconds, ceiling=_MOST_OF_OPERATOR),
        indexer=await opened("indexer", policy.role_wait_seconds),
        deliveries=await opened("deliveries", policy.role_wait_seconds),
        admin=await opened("admin", policy.http_wait_seconds),
        replica=(
            await database.open_pool(
                replica_url,
                name="ltzd replica",
                size=policy.http,
                open_at_start=0,
                wait_seconds=policy.http_wait_seconds,
                settings=SESSION_SETTINGS,
            )
            if replica_url is not None and "http" in roles
            else None
        ),
    )
    try:
        for role in pooled.intersection(roles):
            async with database.session(getattr(pools, role)) as connection:
                await pooler.switch_off_jit(connection)
        yield pools
    finally:
        for _, pool in pools.each():
            pool.terminate()


async def open_fresh_pool(url: str, search_path: str, *, must_be_durable: bool = False) -> Pool:
    """The connections that fill the fresh tables of a rebuild, opened while there is one."""
    return await database.open_pool(
        url,
        name="ltzd rebuild",
        size=_FRESH_CONNECTIONS,
        open_at_start=0,
        settings=SESSION_SETTINGS | {"search_path": search_path},
        check=durability.require if must_be_durable else None,
    )

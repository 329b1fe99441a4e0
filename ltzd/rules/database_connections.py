"""The most database connections of a process, role by role.

PostgreSQL's `max_connections` must cover those of all processes, and some for people and back-ups.
"""

from collections.abc import Collection

import msgspec

LANES = 2
"""The lanes that `PoolPolicy.operator` is meant for."""
PER_LANE = 2
"""Connections that the pool of the role operator gains with each further lane."""
LEASE_ROLES = frozenset(("operator", "indexer", "deliveries"))
"""The roles that hold leases: of lanes, of the chain, and of the recheck of chat roles."""
LEASES = 1
"""The connection on which a process keeps all its leases."""
LISTENERS = 1
"""The connection that listens for wake-ups, in every process."""
POOLABLE_ROLES = frozenset(("http", "deliveries"))
"""The roles whose connections may lead through a pooler. Of the other roles an installation has few
processes, and a pooler that fails must stop neither lanes nor the index."""


def pooled_pools(roles: Collection[str]) -> frozenset[str]:
    """The pools of a process with these roles that use the pooler, if there is one."""
    return POOLABLE_ROLES | {"admin"} if set(roles) <= POOLABLE_ROLES else POOLABLE_ROLES


class PoolPolicy(msgspec.Struct, frozen=True):
    """The most connections of each role's pool. `admin` is the pool that every process has."""

    http: int = 10
    operator: int = 8
    """Two lanes, and in each of them four tasks that may use the database at once. More lanes share
    a larger pool, see `operator_size`."""
    indexer: int = 2
    deliveries: int = 4
    admin: int = 2
    http_wait_seconds: float = 5.0
    """How long a request waits for a free connection, of HTTP's pool or of the admin pool."""
    role_wait_seconds: float = 30.0
    """How long another role waits for a free connection. Then its step fails, as without a
    database."""

    def by_role(self) -> dict[str, int]:
        return {
            "http": self.http,
            "operator": self.operator,
            "indexer": self.indexer,
            "deliveries": self.deliveries,
        }

    def operator_size(self, lanes: int) -> int:
        """The most connections of the role operator with this number of lanes."""
        return self.operator + PER_LANE * max(0, lanes - LANES)

    def total(
        self, roles: Collection[str], lanes: int = LANES, pooled: Collection[str] = ()
    ) -> int:
        """The most connections of a process with these roles and this number of lanes.

        The pools named in `pooled` lead to a pooler, and their connections do not count.
        """
        sizes = self.by_role() | {"operator": self.operator_size(lanes), "admin": self.admin}
        leases = LEASES if LEASE_ROLES & set(roles) else 0
        pools = {"admin", *roles}.difference(pooled)
        return LISTENERS + leases + sum(sizes[pool] for pool in pools)

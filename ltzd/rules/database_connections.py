"""The most database connections of a process, role by role.

PostgreSQL's `max_connections` must hold those of all processes, and some for people and back-ups.
"""

from collections.abc import Collection
from dataclasses import dataclass

LEASE_ROLES = frozenset(("operator", "indexer", "deliveries"))
"""The roles that hold leases: of lanes, of the chain, and of the recheck of chat roles."""
LEASES = 1
"""The connection on which a process keeps all its leases."""
LISTENERS = 1
"""The connection that listens for wake-ups, in every process."""


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """The most connections of each role's pool. `admin` is the pool that every process has."""

    http: int = 10
    operator: int = 8
    """Two lanes, and in each of them four tasks that may use the database at once."""
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

    def total(self, roles: Collection[str]) -> int:
        """The most connections of a process with these roles."""
        sizes = self.by_role()
        leases = LEASES if LEASE_ROLES & set(roles) else 0
        return self.admin + LISTENERS + leases + sum(sizes[role] for role in roles)

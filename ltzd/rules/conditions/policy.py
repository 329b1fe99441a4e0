"""The thresholds beyond which a fact is a condition. Units: seconds, blocks."""

import msgspec

from ltzd.rules.indexer.standstill import StandstillPolicy


class ConditionPolicy(msgspec.Struct, frozen=True):
    max_lag_blocks: int = 32
    max_lag_seconds: float = 60.0
    """The indexer may be more blocks behind if they are younger: fast chains have many a second."""
    standstill: StandstillPolicy = msgspec.field(default_factory=StandstillPolicy)
    mines_on_demand: bool = False
    """A dev chain that mines a block only when there is a transaction, and whose time is moved."""
    reward_seconds: float = 300.0
    relay_seconds: float = 120.0
    webhook_seconds: float = 60.0
    """Rewards and relays that were queued for longer, and webhooks that were due for longer, are
    overdue."""
    absent_seconds: float = 20.0
    """While no process indexes, the index is old if its last commit is older than this."""
    overload_seconds: float = 60.0
    """A process that has refused requests for longer needs help."""
    replica_seconds: float = 60.0
    """A replica that has not been used for longer needs help."""
    clock_seconds: float = 30.0
    """Between a process's clock and the database's."""
    chain_clock_seconds: float = 60.0
    """Between a process's clock and a newer block. Blocks of some rollups are tens of seconds
    ahead."""
    certificate_seconds: float = 14 * 86_400.0
    """Certificates closer to their expiry have not been renewed in time."""
    missing_after_seconds: float = 20.0
    """A process that has not reported for this time is missing; processes report every 5 s."""

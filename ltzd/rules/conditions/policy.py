"""The thresholds from which on something is a condition. Units: seconds, blocks."""

from dataclasses import dataclass, field

from ltzd.rules.indexer.standstill import StandstillPolicy


@dataclass(frozen=True, slots=True)
class ConditionPolicy:
    max_lag_blocks: int = 32
    max_lag_seconds: float = 60.0
    """The indexer may be more blocks behind if they are younger: fast chains have many a second."""
    standstill: StandstillPolicy = field(default_factory=StandstillPolicy)
    mines_on_demand: bool = False
    """A dev chain, whose blocks may stop to come at any time."""
    reward_seconds: float = 300.0
    relay_seconds: float = 120.0
    webhook_seconds: float = 60.0
    """Queued rewards, queued relays and due webhooks that are older are overdue."""
    absent_seconds: float = 20.0
    """Without an indexer the index counts as old so long after its last commit."""
    overload_seconds: float = 60.0
    """A process that has refused requests for longer needs help."""
    replica_seconds: float = 60.0
    """A replica that has not been used for longer needs help."""
    clock_seconds: float = 30.0
    certificate_seconds: float = 14 * 86_400.0
    """Certificates closer to their expiry have not been renewed in time."""
    missing_after_seconds: float = 20.0
    """A process without a report for so long is missing. Processes report every five seconds."""

"""The facts of an installation that conditions are judged from.

`ClusterFacts` come from the database, so every process reads the same. Units: seconds, wei, blocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from ltzd.rules.conditions.kinds import Condition
from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One run of one process; `id` is new with every start."""

    id: UUID
    host: str
    pid: int
    roles: tuple[str, ...]
    version: str

    @property
    def name(self) -> str:
        """As leases name their holder."""
        return f"{self.host}/{self.pid}"


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane that a process serves or waits for. `stopped` is the reason that it stopped."""

    wallet: Address
    kind: str
    is_held: bool
    stopped: str | None = None
    balance_wei: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """A process's own account of itself; `height` is the highest block that its nodes showed."""

    conditions: tuple[Condition, ...] = ()
    lanes: tuple[LaneState, ...] = ()
    height: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A row of `processes`. `seen_seconds` is the age of its report."""

    identity: ProcessIdentity
    started_seconds: float
    seen_seconds: float
    report: ProcessReport = ProcessReport()


@dataclass(frozen=True, slots=True)
class ChainFacts:
    chain_id: int
    ltz: Address
    head_number: int
    cursor_number: int
    final_number: int
    idle_seconds: float
    """Since the indexer's last commit of blocks. A chain that mines on demand lets it grow."""
    block_seconds: float | None = None
    """The measured block time, or None for a chain without a regular one."""
    stopped_reason: str | None = None
    """Why nothing is indexed until a person acts, or None while the index is not stopped."""
    stopped_at: datetime | None = None
    audited_number: int | None = None
    """Every block up to this one was read a second time and compared, or None before that."""
    first_block: int = 0
    blocks_per_second: float | None = None
    """How fast the cursor follows far from the head, or None near it."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """`lease_holders` has the process of every lease that is held, by the lease's name."""

    chain: ChainFacts | None = None
    processes: tuple[ProcessFacts, ...] = ()
    lease_holders: Mapping[str, str] = field(default_factory=dict)

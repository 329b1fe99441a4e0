"""The facts of an installation that conditions are judged from.

`ClusterFacts` come from the database, so every process reads the same. Units: seconds, wei, blocks.
"""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from ltzd.rules.conditions.kinds import Condition
from ltzd.values import Address


class ProcessIdentity(msgspec.Struct, frozen=True):
    """One run of one process; `id` is new with every start."""

    id: UUID
    host: str
    pid: int
    roles: tuple[str, ...]
    version: str

    @property
    def name(self) -> str:
        """HOST/PID, the text by which leases name their holder."""
        return f"{self.host}/{self.pid}"


class LaneState(msgspec.Struct, frozen=True):
    """A lane that a process serves or waits for.

    `stopped` is the reason that it stopped. `floor_wei` is the balance below which the wallet needs
    gas money, 0 for none. `missing_roles` are contract roles that the wallet should have and has
    not, such as `LTZ.MINTER`. `mint_limit_is_zero` is about a mint wallet.
    """

    wallet: Address
    kind: str
    is_held: bool
    stopped: str | None = None
    balance_wei: int | None = None
    floor_wei: int = 0
    missing_roles: tuple[str, ...] = ()
    mint_limit_is_zero: bool = False


class ProcessReport(msgspec.Struct, frozen=True):
    """A process's own account of itself; `height` is the highest block that its nodes showed."""

    conditions: tuple[Condition, ...] = ()
    lanes: tuple[LaneState, ...] = ()
    height: int | None = None


class ProcessFacts(msgspec.Struct, frozen=True):
    """A row of `processes`. `seen_seconds` is the age of its report."""

    identity: ProcessIdentity
    started_seconds: float
    seen_seconds: float
    report: ProcessReport = ProcessReport()


class ChainFacts(msgspec.Struct, frozen=True):
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


class WalletFacts(msgspec.Struct, frozen=True):
    """A wallet of the registry that is not retired, or that a person must look at.

    `holder` is the process that holds its lane. `paused_for` is why the lane signs nothing, as its
    holder reported within the last minute; `by_hand_reason` is the reason of a person.
    """

    wallet: Address
    kind: str
    holder: str | None
    paused_for: str | None = None
    paused_seconds: float | None = None
    by_hand_reason: str | None = None


class QueueFacts(msgspec.Struct, frozen=True):
    """Work that waits, counted up to a bound.

    The ages are of the oldest reward that could be minted now, of the oldest queued relay, and the
    time since the oldest webhook became due, or None without such a row. Rewards above the mint
    limit's capacity, of paused brands, and webhooks of disabled endpoints do not count for them.
    `disabled_endpoints` pairs brands with the reason.
    """

    reward_seconds: float | None = None
    rewards_above_limit: int = 0
    relay_seconds: float | None = None
    webhook_seconds: float | None = None
    disabled_endpoints: tuple[tuple[Address, str], ...] = ()


class ClusterFacts(msgspec.Struct, frozen=True):
    """`lease_holders` has the process of every lease that is held, by the lease's name.

    `rebuild` is the state of the open rebuild of the index, `rebuild_error` is why its last attempt
    to go on failed. `migrations` names the background migrations that are not finished;
    `migration_errors` has the error of each one whose last attempt failed.
    """

    chain: ChainFacts | None = None
    processes: tuple[ProcessFacts, ...] = ()
    lease_holders: Mapping[str, str] = msgspec.field(default_factory=dict)
    wallets: tuple[WalletFacts, ...] = ()
    queues: QueueFacts = QueueFacts()
    rebuild: str | None = None
    rebuild_error: str | None = None
    migrations: tuple[str, ...] = ()
    migration_errors: Mapping[str, str] = msgspec.field(default_factory=dict)

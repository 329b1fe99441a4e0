"""The conditions that only this process can see: of its nodes, its wallets, its services.

A source is a function of the daemon that returns conditions now; it neither waits nor raises.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from ltzd.chain.pool import health
from ltzd.daemon.assembly import IDENTITY, Daemon
from ltzd.daemon.indexer import DEV_CHAIN_IDS
from ltzd.operator.policy import WATCHED
from ltzd.rules.conditions.clocks import judge_clock
from ltzd.rules.conditions.facts import LaneState, ProcessReport
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.rules.conditions.lanes import judge_own_lanes
from ltzd.rules.conditions.policy import ConditionPolicy
from ltzd.values import checksummed, iso

Source = Callable[[Daemon], Iterable[Condition]]


def own_conditions(daemon: Daemon) -> list[Condition]:
    return [condition for source in _SOURCES for condition in source(daemon)]


def condition_policy(daemon: Daemon) -> ConditionPolicy:
    chain_id = daemon.relay_context.contracts.chain_id
    return ConditionPolicy(mines_on_demand=chain_id in DEV_CHAIN_IDS)


def own_report(daemon: Daemon) -> ProcessReport:
    """The report that the process writes into its row."""
    return ProcessReport(
        conditions=tuple(own_conditions(daemon)),
        lanes=tuple(lane_states(daemon)),
        height=health.height(daemon.nodes.reports()),
    )


def lane_states(daemon: Daemon) -> list[LaneState]:
    """A retired wallet that another process watches concerns this process no more."""
    if daemon.operator is None:
        return []
    fleet, wallet_rights = daemon.operator.fleet, daemon.operator.wallet_rights
    failures = fleet.failures
    floors = daemon.settings.operator.balance_floors()
    states = []
    for lane in fleet.lanes:
        if not lane.is_serving and lane.kind == WATCHED:
            continue
        rights = wallet_rights.of(lane.wallet)
        states.append(
            LaneState(
                lane.wallet,
                lane.kind,
                lane.is_serving,
                lane.stopped or failures.get(lane.wallet),
                lane.balance_wei,
                floors.get(lane.kind, 0),
                rights.missing_roles,
                rights.mint_limit_is_zero,
            )
        )
    return states


def _draining(daemon: Daemon) -> Iterable[Condition]:
    if daemon.state.is_draining:
        yield Condition(
            ConditionKind.DRAINING,
            f"Process {daemon.process.name} is stopping, and finishes its requests",
            daemon.process.name,
            is_blocking=True,
        )


def _staging(daemon: Daemon) -> Iterable[Condition]:
    if daemon.settings.staging:
        yield Condition(
            ConditionKind.STAGING,
            "Outside services may be on this machine: staging is set, which is not for production",
        )


def _disk(daemon: Daemon) -> Iterable[Condition]:
    words = daemon.pools.disk_full
    if words is not None:
        yield Condition(
            ConditionKind.DATABASE_UNAVAILABLE,
            f"PostgreSQL's disk is full, and nothing can be accepted: {words}. Free space on it",
        )


def _nodes(daemon: Daemon) -> Iterable[Condition]:
    return health.judge(daemon.nodes.reports(), daemon.settings.roles)


def _lanes(daemon: Daemon) -> Iterable[Condition]:
    return judge_own_lanes(lane_states(daemon))


def _wallets(daemon: Daemon) -> Iterable[Condition]:
    """Wallets that this process should serve and cannot.

    A wallet of its settings makes it unready.
    """
    if daemon.operator is None:
        return
    for wallet in daemon.operator.fleet.unserved:
        yield Condition(
            ConditionKind.WALLET_UNSERVED,
            wallet.sentence,
            wallet.name,
            is_blocking=wallet.is_required,
        )


def _totals(daemon: Daemon) -> Iterable[Condition]:
    totals = () if daemon.indexer is None else daemon.indexer.follower.differing_totals
    if totals:
        yield Condition(
            ConditionKind.INDEX_TOTALS_DIFFER,
            f"The contracts' totals differ from the index, and no block explains it: "
            f"{'; '.join(totals)}. `ltzd index check` compares it with the nodes",
        )


def _services(daemon: Daemon) -> Iterable[Condition]:
    seconds = daemon.services.seconds_away(IDENTITY)
    if seconds is not None:
        yield Condition(
            ConditionKind.IDENTITY_UNAVAILABLE,
            f"The identity provider has not answered, or has refused ltzd's credentials, for "
            f"{seconds:.0f} s: new users get no wallets, and tokens of unknown keys are refused",
        )
    if daemon.limits.is_redis_away:
        yield Condition(
            ConditionKind.REDIS_UNAVAILABLE,
            "Redis does not answer, so each process counts rate limits by itself",
        )


def _overload(daemon: Daemon) -> Iterable[Condition]:
    seconds = daemon.gate.overloaded_seconds
    if seconds is not None and seconds > _POLICY.overload_seconds:
        yield Condition(
            ConditionKind.HTTP_OVERLOADED,
            f"Process {daemon.process.name} has refused requests for {seconds:.0f} s, since it "
            "gets more than it can serve: add a process with the role http, or find the caller",
            daemon.process.name,
        )


def _brands(daemon: Daemon) -> Iterable[Condition]:
    for brand, reason in daemon.brands.unreadable.items():
        name = checksummed(brand)
        yield Condition(
            ConditionKind.BRAND_UNREADABLE,
            f"The newest configuration of brand {name} is not in force: {reason}",
            name,
        )


def _replica(daemon: Daemon) -> Iterable[Condition]:
    unused = daemon.replica.unused
    if unused is not None and unused[0] > _POLICY.replica_seconds:
        yield Condition(
            ConditionKind.REPLICA_UNUSED,
            f"The standby of [database] replica_url has not been used for {unused[0]:.0f} s: "
            f"{unused[1]}. The primary answers in its place",
            daemon.process.name,
        )


def _clock(daemon: Daemon) -> Iterable[Condition]:
    offset, ahead = daemon.state.clock_offset_seconds, daemon.nodes.seconds_ahead()
    condition = judge_clock(daemon.process.host, offset, ahead, condition_policy(daemon))
    return () if condition is None else (condition,)


def _certificates(daemon: Daemon) -> Iterable[Condition]:
    certificates = daemon.state.certificates
    for certificate in (certificates.public, certificates.admin):
        if certificate is None:
            continue
        left = (certificate.expires_at - datetime.now(UTC)).total_seconds()
        if left < _POLICY.certificate_seconds:
            yield Condition(
                ConditionKind.CERTIFICATE_EXPIRES,
                f"The certificate of the {certificate.server} port of {daemon.process.host} "
                f"expires at {iso(certificate.expires_at)}: renew it, and send SIGHUP",
                f"{daemon.process.host} {certificate.server}",
            )


_POLICY = ConditionPolicy()
_SOURCES: Sequence[Source] = (
    _draining,
    _staging,
    _disk,
    _nodes,
    _lanes,
    _wallets,
    _totals,
    _services,
    _overload,
    _brands,
    _replica,
    _clock,
    _certificates,
)

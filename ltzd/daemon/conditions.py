"""The conditions that only this process can see: of its nodes, its wallets, its services.

A source is a function of the daemon that returns conditions now; it neither waits nor raises.
"""

from collections.abc import Callable, Iterable, Sequence

from ltzd.chain.pool import health
from ltzd.daemon.assembly import Daemon
from ltzd.operator.policy import WATCHED
from ltzd.rules.conditions.facts import LaneState, ProcessReport
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.rules.conditions.lanes import judge_own_lanes

Source = Callable[[Daemon], Iterable[Condition]]


def own_conditions(daemon: Daemon) -> list[Condition]:
    return [condition for source in _SOURCES for condition in source(daemon)]


def own_report(daemon: Daemon) -> ProcessReport:
    """The report that the process writes into its row."""
    return ProcessReport(
        conditions=tuple(own_conditions(daemon)),
        lanes=tuple(lane_states(daemon)),
        height=health.height(daemon.nodes.reports()),
    )


def lane_states(daemon: Daemon) -> list[LaneState]:
    """A retired wallet that another process watches concerns this process no more."""
    if daemon.fleet is None:
        return []
    failures = daemon.fleet.failures
    return [
        LaneState(
            lane.wallet,
            lane.kind,
            lane.is_serving,
            lane.stopped or failures.get(lane.wallet),
            lane.balance_wei,
        )
        for lane in daemon.fleet.lanes
        if lane.is_serving or lane.kind != WATCHED
    ]


def _nodes(daemon: Daemon) -> Iterable[Condition]:
    return health.judge(daemon.nodes.reports(), daemon.settings.roles)


def _lanes(daemon: Daemon) -> Iterable[Condition]:
    return judge_own_lanes(lane_states(daemon))


def _wallets(daemon: Daemon) -> Iterable[Condition]:
    """Wallets that this process should serve and cannot; those of its settings make it unready."""
    if daemon.fleet is None:
        return
    for wallet in daemon.fleet.unserved:
        yield Condition(
            ConditionKind.WALLET_UNSERVED,
            wallet.sentence,
            wallet.name,
            is_blocking=wallet.is_required,
        )


_SOURCES: Sequence[Source] = (_nodes, _lanes, _wallets)

"""The state of a pool of nodes for health endpoints, status pages and metrics.

`reports` come from `NodePool.reports()`. Sentences name nodes by host and port, as the reports do.
"""

import asyncio
from collections.abc import Iterable, Sequence
from enum import Enum

from ltzd import telemetry
from ltzd.chain.node.node import Node
from ltzd.chain.pool.pool import NodePool
from ltzd.chain.pool.report import NodeReport, Unfit
from ltzd.errors import LtzdError
from ltzd.rules.conditions.kinds import Condition, ConditionKind

_SENTENCES = {
    Unfit.UNVERIFIED: "has not shown yet that it belongs to the chain",
    Unfit.OTHER_CHAIN: "belongs to another chain and is not used",
    Unfit.NO_CONTRACT: "does not have LTZ's code and is not used",
    Unfit.UNREACHABLE: "does not answer",
    Unfit.HUNG: "accepts requests and does not answer",
    Unfit.RATE_LIMITED: "refuses requests because there are too many",
    Unfit.BEHIND: "is behind the other nodes",
    Unfit.DISAGREES: "contradicts other nodes or itself",
}
_LAST_RESORTS = frozenset((Unfit.BEHIND, Unfit.DISAGREES))
"""Nodes that answer, and that are asked if no better one is left."""


class ChainState(Enum):
    """`DEGRADED`: each node that answers contradicts other nodes or itself."""

    CONNECTED = "connected"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


def is_serving(report: NodeReport) -> bool:
    """Whether requests to the node are answered, be it as the last resort."""
    return report.is_usable or (report.reason in _LAST_RESORTS and report.height is not None)


def faults(reports: Iterable[NodeReport]) -> list[str]:
    """A sentence for each node that has a fault, also if the node is used nevertheless."""
    return [_fault(report) for report in reports if report.reason or not report.is_usable]


def _fault(report: NodeReport) -> str:
    sentence = f"Node {report.name} {_SENTENCES[report.reason or Unfit.UNVERIFIED]}"
    since = report.seconds_since_answer
    if is_serving(report) or since is None:
        return sentence
    return f"{sentence} (its last answer was {since:.0f} s ago)"


def judge(reports: Sequence[NodeReport], roles: Sequence[str]) -> list[Condition]:
    """The nodes' faults as this process, with these roles, sees them."""
    conditions = [
        Condition(ConditionKind.NODE_UNUSABLE, _fault(report), report.name)
        for report in reports
        if report.reason or not report.is_usable
    ]
    if reports and not any(is_serving(report) for report in reports):
        sentence = "No node can be used: " + "; ".join(faults(reports))
        blocks = needs_a_node(roles)
        conditions.append(Condition(ConditionKind.NO_NODE_USABLE, sentence, is_blocking=blocks))
    return conditions


def height(reports: Iterable[NodeReport]) -> int | None:
    """The highest block that a trusted node has shown."""
    heights = [each.height for each in reports if each.is_usable and each.height is not None]
    return max(heights, default=None)


def measure(reports: Iterable[NodeReport]) -> None:
    """Set the gauges of every node."""
    for report in reports:
        name = report.name
        telemetry.NODE_USABLE.labels(name).set(report.is_usable)
        telemetry.NODE_IN_USE.labels(name).set(report.is_preferred)
        telemetry.NODE_REQUESTS_IN_FLIGHT.labels(name).set(report.in_flight)
        for reason in Unfit:
            telemetry.NODE_UNFIT.labels(name, reason.value).set(report.reason is reason)
        if report.height is not None:
            telemetry.NODE_HEIGHT.labels(name).set(report.height)
        if report.latency_seconds is not None:
            telemetry.NODE_LATENCY_SECONDS.labels(name).set(report.latency_seconds)
        if report.seconds_since_answer is not None:
            telemetry.NODE_SILENT_SECONDS.labels(name).set(report.seconds_since_answer)


async def probe(pool: NodePool, seconds: float) -> ChainState:
    """Ask every node of the chain at once; the first answer of a trusted node is enough.

    Returns within `seconds`, also if every node hangs.
    """
    reports = {report.name: report for report in pool.reports()}
    probes = {
        asyncio.create_task(_answers(node)): reports[name]
        for name, node in pool.nodes()
        if reports[name].is_usable or reports[name].reason in _PROBED
    }
    try:
        return await _first_state(probes, seconds)
    finally:
        for task in probes:
            task.cancel()


_PROBED = frozenset(Unfit) - {Unfit.UNVERIFIED, Unfit.OTHER_CHAIN, Unfit.NO_CONTRACT}


async def _answers(node: Node) -> bool:
    try:
        await node.chain_id()
    except LtzdError:
        return False
    return True


async def _first_state(probes: dict[asyncio.Task[bool], NodeReport], seconds: float) -> ChainState:
    state, pending = ChainState.UNAVAILABLE, set(probes)
    deadline = asyncio.get_running_loop().time() + seconds
    while pending:
        left = deadline - asyncio.get_running_loop().time()
        done, pending = await asyncio.wait(
            pending, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            break
        answered = [probes[task] for task in done if task.result()]
        if any(report.reason is not Unfit.DISAGREES for report in answered):
            return ChainState.CONNECTED
        if answered:
            state = ChainState.DEGRADED
    return state


def needs_a_node(roles: Sequence[str]) -> bool:
    """Whether a process with these roles does nothing without a node.

    HTTP accepts events and payments without one, and webhooks need none.
    """
    return bool({"operator", "indexer"} & set(roles))

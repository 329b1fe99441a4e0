"""The admin server, on a port of its own: /healthz, /readyz, /status and /metrics.

On a loopback address it refuses a foreign Host or Origin, so that a web page cannot reach it
through a browser (DNS rebinding). On another address, or with a token, every path but /healthz
requires `Authorization: Bearer`. The settings require TLS for such an address.
"""

import asyncio
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from sanic.exceptions import BadRequest
from sanic.request import Request

from ltzd import __version__, telemetry
from ltzd.chain.pool import health
from ltzd.chain.pool.report import NodeReport
from ltzd.errors import DatabaseUnavailable, Misconfigured, Unauthorized
from ltzd.http.errors import ErrorResponder, RequestError, path_of
from ltzd.http.loopback import host_of, is_loopback
from ltzd.http.relayer import errors as relayer_errors
from ltzd.http.requests.host_header import refuse_bad_host
from ltzd.http.responses import Reply, json_reply
from ltzd.http.sanic_app import App, new_app
from ltzd.http.surface import READ_METHODS
from ltzd.rules.conditions import readiness
from ltzd.rules.conditions.facts import (
    ChainFacts,
    ClusterFacts,
    LaneState,
    ProcessFacts,
    ProcessIdentity,
)
from ltzd.rules.conditions.index import progress_of
from ltzd.rules.conditions.judging import OwnView, judge
from ltzd.rules.conditions.kinds import Condition, ConditionKind, Severity
from ltzd.rules.conditions.policy import ConditionPolicy
from ltzd.rules.conditions.processes import live
from ltzd.rules.indexer.standstill import IndexProgress, stands_still
from ltzd.store.background_migrations import BackgroundMigration
from ltzd.store.indexer.rebuild.orders import RebuildProgress
from ltzd.store.operator.leases import LeaseFacts
from ltzd.store.status import LaneFacts, RelayFacts, RewardFacts, StatusFacts
from ltzd.values import Address, checksummed, iso

FACTS_TIMEOUT_SECONDS = 5.0
_DETAIL_CHARACTERS = 200
OPEN_PATH = "/healthz"
"""The path that needs no token."""


class ForeignHost(RequestError):
    """The Host or Origin header does not name this machine."""

    status = 403
    code = "FORBIDDEN"
    condition = "the Host or Origin header does not name this machine"


@dataclass(frozen=True, slots=True)
class AdminPolicy:
    """`host` is the address that the server binds to."""

    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    conditions: ConditionPolicy = field(default_factory=ConditionPolicy)


@dataclass(frozen=True, slots=True)
class AdminSources:
    """`facts` raises DatabaseUnavailable; `measure` sets gauges before they are read.

    `own` has the conditions that only this process can see.
    """

    process: ProcessIdentity
    facts: Callable[[], Awaitable[StatusFacts]]
    lanes: Callable[[], Sequence[LaneState]] = tuple
    own: Callable[[], Sequence[Condition]] = tuple
    nodes: Callable[[], Sequence[NodeReport]] = tuple
    measure: Callable[[], None] = lambda: None


def build_admin_app(sources: AdminSources, policy: AdminPolicy) -> App:
    """Raises Misconfigured for an address that other machines can reach, without a token."""
    if policy.token is None and not is_loopback(policy.host):
        raise Misconfigured(
            f"The admin port would be open to others on {policy.host}: set admin.token_file, "
            "or bind it to 127.0.0.1."
        )
    app = new_app("ltzd-admin", ErrorResponder(relayer_errors.ERRORS))
    handlers = AdminHandlers(sources, policy)
    app.on_request(handlers.authorize)
    for handler, path in (
        (handlers.healthz, OPEN_PATH),
        (handlers.readyz, "/readyz"),
        (handlers.status, "/status"),
        (handlers.metrics, "/metrics"),
    ):
        app.add_route(handler, path, READ_METHODS)
    return app


class AdminHandlers:
    def __init__(self, sources: AdminSources, policy: AdminPolicy) -> None:
        self._sources = sources
        self._policy = policy
        self._is_local = is_loopback(policy.host)

    def authorize(self, request: Request) -> None:
        """Raises ForeignHost, BadRequest and Unauthorized."""
        if self._is_local:
            _refuse_foreign_host(request)
        refuse_bad_host(request)
        if self._policy.token is not None and path_of(request) != OPEN_PATH:
            _require_token(self._policy.token, request)

    async def healthz(self, _request: Request) -> Reply:
        """200 while the process and its event loop run. Checks nothing else."""
        return json_reply({"status": "alive"})

    async def readyz(self, request: Request) -> Reply:
        """503 with the reasons while the process is not ready.

        With `?role=http` a fault that another process must mend counts for nothing.
        """
        role = request.args.get("role")
        if role not in {None, "http"}:
            raise BadRequest("The only role that readiness can be asked for is http")
        conditions = self._judge(await self._facts())
        blocking = readiness.reasons(conditions, for_http=role == "http")
        body = _readiness(conditions, blocking)
        return json_reply(body, 503 if blocking else 200)

    async def status(self, _request: Request) -> Reply:
        facts = await self._facts()
        conditions = self._judge(facts)
        body: dict[str, object] = {
            "version": __version__,
            "process": self._sources.process.name,
            "roles": list(self._sources.process.roles),
            "timestamp": iso(datetime.now(UTC)),
            **_readiness(conditions, readiness.reasons(conditions)),
            "conditions": [_condition(condition) for condition in conditions],
            "database": "unavailable" if facts is None else "connected",
            "nodes": [_node_status(report) for report in self._sources.nodes()],
        }
        if facts is not None:
            body |= _status(facts, {lane.wallet: lane for lane in self._sources.lanes()})
            if facts.chain is not None:
                progress = self._progress(facts.cluster, facts.chain)
                body["chain"] = _chain_status(facts.chain, progress)
        return json_reply(body)

    async def metrics(self, _request: Request) -> Reply:
        facts = await self._facts()
        self._sources.measure()
        _count(self._judge(facts))
        if facts is not None:
            self._measure_index(facts)
            telemetry.QUEUED_REWARDS.set(facts.rewards.queued)
            telemetry.QUEUED_RELAYS.set(facts.relays.queued)
            telemetry.REWARDS_ABOVE_LIMIT.set(facts.rewards.above_limit)
            telemetry.BACKGROUND_MIGRATIONS.set(len(facts.migrations))
            for kind, count in facts.unserved.items():
                telemetry.WALLETS_UNSERVED.labels(kind).set(count)
        return Reply(telemetry.exposition(), 200, None, CONTENT_TYPE_LATEST)

    def _measure_index(self, facts: StatusFacts) -> None:
        if facts.chain is not None:
            progress = self._progress(facts.cluster, facts.chain)
            is_still = stands_still(progress, self._policy.conditions.standstill)
            telemetry.INDEX_STANDS_STILL.set(is_still)
            telemetry.INDEX_IDLE_SECONDS.set(facts.chain.idle_seconds)
            telemetry.INDEX_STOPPED.set(facts.chain.stopped_reason is not None)

    async def _facts(self) -> StatusFacts | None:
        """Returns None while the database does not answer."""
        try:
            async with asyncio.timeout(FACTS_TIMEOUT_SECONDS):
                return await self._sources.facts()
        except (DatabaseUnavailable, TimeoutError):
            return None

    def _judge(self, facts: StatusFacts | None) -> tuple[Condition, ...]:
        own = OwnView(self._sources.process, tuple(self._sources.own()), self._height())
        return judge(None if facts is None else facts.cluster, own, self._policy.conditions)

    def _height(self) -> int | None:
        """The highest block that a trusted node has shown to this process."""
        return health.height(self._sources.nodes())

    def _progress(self, facts: ClusterFacts, chain: ChainFacts) -> IndexProgress:
        others = live(facts, self._sources.process, self._policy.conditions)
        heights = [self._height(), *(process.report.height for process in others)]
        return progress_of(chain, heights, self._policy.conditions)


def _readiness(conditions: Sequence[Condition], blocking: Sequence[Condition]) -> dict[str, object]:
    """`warnings` are the other faults that need a person."""
    warnings = [
        condition
        for condition in conditions
        if condition not in blocking and condition.kind.facts.severity is not Severity.NOTICE
    ]
    return {
        "ready": not blocking,
        "reasons": [condition.sentence for condition in blocking],
        "warnings": [condition.sentence for condition in warnings],
    }


def _condition(condition: Condition) -> dict[str, object]:
    facts = condition.kind.facts
    return {
        "kind": condition.kind.value,
        "severity": facts.severity.value,
        "subject": condition.subject,
        "sentence": condition.sentence,
        "seenBy": list(condition.seen_by),
        "runbook": f"docs/runbooks/{facts.runbook}",
    }


def _count(conditions: Sequence[Condition]) -> None:
    """Set `ltzd_conditions`, also to 0 for every kind without a condition."""
    counts = Counter(condition.kind for condition in conditions)
    for kind in ConditionKind:
        telemetry.CONDITIONS.labels(kind.value).set(counts[kind])


def _refuse_foreign_host(request: Request) -> None:
    if not is_loopback(host_of(request.headers.getone("host", ""))):
        raise ForeignHost("This port accepts only host names of this machine, such as 127.0.0.1")
    origin = request.headers.getone("origin", None)
    if origin is not None and not is_loopback(host_of(origin.partition("://")[2])):
        raise ForeignHost("This port accepts no requests from web pages of other machines")


def _require_token(token: str, request: Request) -> None:
    scheme, _, credential = request.headers.getone("authorization", "").partition(" ")
    is_right = hmac.compare_digest(credential.strip().encode(errors="replace"), token.encode())
    if scheme.lower() != "bearer" or not is_right:
        raise Unauthorized("The admin token is missing or wrong")


def _status(facts: StatusFacts, lanes: dict[Address, LaneState]) -> dict[str, object]:
    return {
        "chain": None,
        "lanes": [_lane_status(lane, lanes.get(lane.wallet)) for lane in facts.lanes],
        "processes": [_process_status(process) for process in facts.processes],
        "leases": [_lease_status(lease) for lease in facts.leases],
        "rewards": _reward_status(facts.rewards),
        "relays": _relay_status(facts.relays),
        "eventsLastMinute": facts.events_last_minute,
        "migrations": [_migration_status(migration) for migration in facts.migrations],
        "rebuild": None if facts.rebuild is None else _rebuild_status(facts.rebuild),
    }


def _chain_status(chain: ChainFacts, progress: IndexProgress) -> dict[str, Any]:
    """`lagSeconds` is None for a chain without a block time."""
    return {
        "chainId": chain.chain_id,
        "ltz": checksummed(chain.ltz),
        "head": progress.head_number,
        "cursor": chain.cursor_number,
        "lagBlocks": progress.lag_blocks,
        "lagSeconds": _rounded(progress.lag_seconds),
        "final": chain.final_number,
        "finalLagSeconds": _rounded(_final_lag_seconds(chain, progress)),
        "audited": chain.audited_number,
        "idleSeconds": round(chain.idle_seconds, 1),
        "blockSeconds": _rounded(progress.block_seconds),
        "blocksPerSecond": _rounded(chain.blocks_per_second),
        "secondsLeft": _rounded(_seconds_left(chain, progress)),
        "firstBlock": chain.first_block,
        "stopped": chain.stopped_reason,
        "stoppedAt": None if chain.stopped_at is None else iso(chain.stopped_at),
    }


def _seconds_left(chain: ChainFacts, progress: IndexProgress) -> float | None:
    """Until the cursor is at the head at the rate of the last minute, or None near the head."""
    if not chain.blocks_per_second:
        return None
    return progress.lag_blocks / chain.blocks_per_second


def _final_lag_seconds(chain: ChainFacts, progress: IndexProgress) -> float | None:
    """The age of the newest final block against the head, or None without a block time."""
    if progress.block_seconds is None:
        return None
    return max(0, progress.head_number - chain.final_number) * progress.block_seconds


def _node_status(report: NodeReport) -> dict[str, Any]:
    """The node as this process sees it; `detail` is its newest fault in words."""
    latency = report.latency_seconds
    return {
        "name": report.name,
        "isUsable": report.is_usable,
        "inUse": report.is_preferred,
        "reason": None if report.reason is None else report.reason.value,
        "detail": report.detail[:_DETAIL_CHARACTERS] or None,
        "height": report.height,
        "latencySeconds": None if latency is None else round(latency, 4),
        "secondsSinceAnswer": _rounded(report.seconds_since_answer),
        "inFlight": report.in_flight,
        "errors": dict(report.errors),
    }


def _lane_status(lane: LaneFacts, state: LaneState | None) -> dict[str, Any]:
    """`isHeld`, `stopped` and the balance are this process's own.

    The balance is in wei, as text: JavaScript does not read such numbers exactly.
    """
    balance = None if state is None else state.balance_wei
    return {
        "wallet": checksummed(lane.wallet),
        "kind": lane.kind,
        "isHeld": state is not None and state.is_held,
        "stopped": None if state is None else state.stopped,
        "pausedFor": lane.paused_for,
        "pausedSince": None if lane.paused_since is None else iso(lane.paused_since),
        "pausedByHandReason": lane.by_hand_reason,
        "epoch": lane.epoch,
        "nextNonce": lane.next_nonce,
        "signed": lane.signed,
        "published": lane.published,
        "mined": lane.mined,
        "inFlight": lane.in_flight,
        "oldestSeconds": _rounded(lane.oldest_seconds),
        "balanceWei": None if balance is None else str(balance),
    }


def _migration_status(migration: BackgroundMigration) -> dict[str, Any]:
    """`progress` is the part of the step that is done, where PostgreSQL tells it."""
    progress = migration.progress
    return {
        "name": migration.name,
        "step": migration.step,
        "progress": None if progress is None else round(progress, 3),
        "startedSeconds": _rounded(migration.started_seconds),
        "error": migration.error,
    }


def _rebuild_status(rebuild: RebuildProgress) -> dict[str, Any]:
    return {
        "id": rebuild.id,
        "reason": rebuild.reason,
        "fromBlock": rebuild.from_block,
        "state": rebuild.state,
        "block": rebuild.block,
        "head": rebuild.head_number,
        "orderedSeconds": _rounded(rebuild.ordered_seconds),
        "error": rebuild.error,
    }


def _process_status(process: ProcessFacts) -> dict[str, Any]:
    return {
        "name": process.identity.name,
        "roles": list(process.identity.roles),
        "version": process.identity.version,
        "startedSeconds": _rounded(process.started_seconds),
        "seenSecondsAgo": _rounded(process.seen_seconds),
    }


def _lease_status(lease: LeaseFacts) -> dict[str, Any]:
    return {
        "name": lease.name,
        "holder": lease.process,
        "heldSeconds": _rounded(lease.held_seconds),
        "renewedSecondsAgo": _rounded(lease.renewed_seconds_ago),
    }


def _reward_status(rewards: RewardFacts) -> dict[str, Any]:
    return {
        "queued": rewards.queued,
        "oldestQueuedSeconds": _rounded(rewards.oldest_queued_seconds),
        "inFlight": rewards.in_flight,
        "minted": rewards.minted,
        "mintedIsEstimate": rewards.minted_is_estimate,
        "aboveMintLimit": rewards.above_limit,
    }


def _relay_status(relays: RelayFacts) -> dict[str, Any]:
    return {
        "queued": relays.queued,
        "oldestQueuedSeconds": _rounded(relays.oldest_queued_seconds),
        "inFlight": relays.in_flight,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)

"""The admin server, on a port of its own: /healthz, /readyz, /status and /metrics.

On a loopback address it refuses a foreign Host or Origin, so that a web page cannot reach it
through a browser (DNS rebinding). On another address, or with a token, every path but /healthz and
the bare answer of /readyz requires `Authorization: Bearer`. The settings require TLS for such an
address.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from sanic.request import Request

from ltzd import __version__, telemetry
from ltzd.chain.pool import health
from ltzd.chain.pool.report import NodeReport
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.errors import DatabaseUnavailable, Misconfigured, Unauthorized
from ltzd.http.admin.answers import (
    chain_json,
    condition_json,
    figures_json,
    lane_json,
    node_json,
    process_json,
    readiness_json,
)
from ltzd.http.admin.measuring import count_conditions, measure_index, measure_queues
from ltzd.http.errors import ErrorResponder, RequestError, RequestMalformed, path_of
from ltzd.http.loopback import host_of, is_loopback
from ltzd.http.relayer import errors as relayer_errors
from ltzd.http.requests.header_form import refuse_bad_headers
from ltzd.http.requests.host_header import refuse_bad_host
from ltzd.http.responses import Reply, json_reply
from ltzd.http.routes import add_route
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
from ltzd.rules.conditions.kinds import Condition
from ltzd.rules.conditions.policy import ConditionPolicy
from ltzd.rules.conditions.processes import live, missing
from ltzd.rules.indexer.standstill import IndexProgress, stands_still
from ltzd.store.status import StatusFacts
from ltzd.values import iso

FACTS_TIMEOUT_SECONDS = 5.0
_Facts = TypeVar("_Facts")

OPEN_PATH = "/healthz"
"""The path that needs no token."""
READY_PATH = "/readyz"
"""Without a token it answers whether, not why: the probes of Kubernetes carry no secret."""


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


class AdminSources(msgspec.Struct, frozen=True):
    """Conditions are judged from `cluster`, whose queries are bounded; `facts` has the figures.

    Both raise DatabaseUnavailable. `own` has the conditions that only this process can see, and
    `measure` sets gauges before they are read.
    """

    process: ProcessIdentity
    cluster: Callable[[], Awaitable[ClusterFacts]]
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
        (handlers.readyz, READY_PATH),
        (handlers.status, "/status"),
        (handlers.metrics, "/metrics"),
    ):
        add_route(app, handler, path, READ_METHODS)
    return app


class AdminHandlers:
    def __init__(self, sources: AdminSources, policy: AdminPolicy) -> None:
        self._sources = sources
        self._policy = policy
        self._is_local = is_loopback(policy.host)
        self._reads: SingleFlight[None, ClusterFacts | None] = SingleFlight("admin facts", 1)

    def authorize(self, request: Request) -> None:
        """Raises ForeignHost, RequestMalformed and Unauthorized."""
        refuse_bad_headers(request)
        if self._is_local:
            _refuse_foreign_host(request)
        refuse_bad_host(request)
        if self._policy.token is None or path_of(request) == OPEN_PATH:
            return
        if path_of(request) != READY_PATH or _has_credential(request):
            _require_token(self._policy.token, request)

    async def healthz(self, _request: Request) -> Reply:
        """200 while the process and its event loop run. Checks nothing else."""
        return json_reply({"status": "alive"})

    async def readyz(self, request: Request) -> Reply:
        """503 with the reasons while the process is not ready.

        With `?role=http` only faults that keep HTTP from its work count. A probe without the port's
        token learns no reason.
        """
        role = request.args.get("role")
        if role not in {None, "http"}:
            raise RequestMalformed("The query parameter role must be http")
        conditions = self._judge(await self._cluster())
        blocking = readiness.reasons(conditions, for_http=role == "http")
        if self._policy.token is None or _has_credential(request):
            body = readiness_json(conditions, blocking)
        else:
            body = {"ready": not blocking}
        return json_reply(body, 503 if blocking else 200)

    async def status(self, _request: Request) -> Reply:
        return json_reply(await self.read_status())

    async def read_status(self) -> dict[str, object]:
        """The answer of `/status`."""
        cluster = await self._cluster()
        facts = None if cluster is None else await _in_time(self._sources.facts())
        conditions = self._judge(cluster)
        body: dict[str, object] = {
            "version": __version__,
            "process": self._sources.process.name,
            "roles": list(self._sources.process.roles),
            "timestamp": iso(datetime.now(UTC)),
            **readiness_json(conditions, readiness.reasons(conditions)),
            "conditions": [condition_json(condition) for condition in conditions],
            "database": "unavailable" if cluster is None else "connected",
            "nodes": [node_json(report) for report in self._sources.nodes()],
        }
        if cluster is not None:
            body["processes"] = self._processes(cluster)
        if cluster is not None and facts is not None:
            body |= figures_json(facts, self._lanes(cluster, facts))
            if facts.chain is not None:
                progress = self._progress(cluster, facts.chain)
                body["chain"] = chain_json(facts.chain, progress)
        return body

    async def metrics(self, _request: Request) -> Reply:
        cluster = await self._cluster()
        facts = None if cluster is None else await _in_time(self._sources.facts())
        self._sources.measure()
        count_conditions(self._judge(cluster))
        self._measure_index(cluster)
        measure_queues(facts)
        return Reply(telemetry.exposition(), 200, None, CONTENT_TYPE_LATEST)

    async def _cluster(self) -> ClusterFacts | None:
        """Requests at the same time share a read: a flood of them, which may need no token, would
        hold the few connections on which the process reports itself and reads brands.
        """
        return await self._reads.call(None, lambda: _in_time(self._sources.cluster()))

    def _measure_index(self, cluster: ClusterFacts | None) -> None:
        if cluster is None or cluster.chain is None:
            measure_index(None, None, is_still=False)
            return
        progress = self._progress(cluster, cluster.chain)
        is_still = stands_still(progress, self._policy.conditions.standstill)
        measure_index(cluster.chain, progress, is_still=is_still)

    def _processes(self, cluster: ClusterFacts) -> list[dict[str, Any]]:
        """The processes that report and those that are missing, but none that was replaced.

        This process is among them in any case: it may not have reported yet.
        """
        me, policy = self._sources.process, self._policy.conditions
        lost = {row.identity.id for row in missing(cluster, me, policy)}
        shown = {me.id, *lost, *(row.identity.id for row in live(cluster, me, policy))}
        rows = [row for row in cluster.processes if row.identity.id in shown]
        if me.roles and me.id not in {row.identity.id for row in rows}:
            rows.append(ProcessFacts(me, started_seconds=0.0, seen_seconds=0.0))
        return [process_json(row, is_missing=row.identity.id in lost) for row in rows]

    def _lanes(self, cluster: ClusterFacts, facts: StatusFacts) -> list[dict[str, Any]]:
        """The lanes with their holders, and with what the holders tell of them."""
        holders = {wallet.wallet: wallet.holder for wallet in cluster.wallets}
        states = {lane.wallet: lane for lane in self._sources.lanes()}
        for process in live(cluster, self._sources.process, self._policy.conditions):
            for lane in process.report.lanes:
                if lane.is_held or lane.wallet not in states:
                    states[lane.wallet] = lane
        return [
            lane_json(lane, holders.get(lane.wallet), states.get(lane.wallet))
            for lane in facts.lanes
        ]

    def _judge(self, cluster: ClusterFacts | None) -> tuple[Condition, ...]:
        own = OwnView(self._sources.process, tuple(self._sources.own()), self._height())
        return judge(cluster, own, self._policy.conditions)

    def _height(self) -> int | None:
        """The highest block that a trusted node has shown to this process."""
        return health.height(self._sources.nodes())

    def _progress(self, facts: ClusterFacts, chain: ChainFacts) -> IndexProgress:
        others = live(facts, self._sources.process, self._policy.conditions)
        heights = [self._height(), *(process.report.height for process in others)]
        return progress_of(chain, heights, self._policy.conditions)


async def _in_time(reading: Awaitable[_Facts]) -> _Facts | None:
    """Return None while the database does not answer."""
    try:
        async with asyncio.timeout(FACTS_TIMEOUT_SECONDS):
            return await reading
    except (DatabaseUnavailable, TimeoutError):
        return None


def _refuse_foreign_host(request: Request) -> None:
    if not is_loopback(host_of(request.headers.getone("host", ""))):
        raise ForeignHost("This port accepts only host names of this machine, such as 127.0.0.1")
    origin = request.headers.getone("origin", None)
    if origin is not None and not is_loopback(host_of(origin.partition("://")[2])):
        raise ForeignHost("This port accepts no requests from web pages of other machines")


def _has_credential(request: Request) -> bool:
    return "authorization" in request.headers


def _require_token(token: str, request: Request) -> None:
    scheme, _, credential = request.headers.getone("authorization", "").partition(" ")
    is_right = hmac.compare_digest(credential.strip().encode(errors="replace"), token.encode())
    if scheme.lower() != "bearer" or not is_right:
        raise Unauthorized("The admin token is missing or wrong")

"""Connects the HTTP applications to the components of the process."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

import structlog
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.chain.pool import health
from ltzd.chain.pool.health import ChainState
from ltzd.daemon.assembly import IDENTITY, Daemon
from ltzd.daemon.conditions import condition_policy, lane_states, own_conditions
from ltzd.errors import LtzdError
from ltzd.http.admin.handlers import AdminPolicy, AdminSources, build_admin_app
from ltzd.http.app import build_app
from ltzd.http.requests.client_address import Proxies
from ltzd.http.sanic_app import App
from ltzd.http.services import Health, HttpPolicy, Services
from ltzd.rules.conditions import readiness
from ltzd.rules.conditions.facts import ClusterFacts
from ltzd.rules.conditions.judging import OwnView, judge
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.rules.domains.names import is_authorized
from ltzd.rules.explorers import explorer_of
from ltzd.store.cluster import read_cluster
from ltzd.store.database import require_writes, session
from ltzd.store.status import StatusFacts, read_status

log = structlog.get_logger()

_HEALTH_SECONDS = 2.0
_OLD_INDEX = frozenset(
    (
        ConditionKind.INDEX_NOT_BEGUN,
        ConditionKind.INDEX_STOPPED,
        ConditionKind.INDEX_STANDS_STILL,
        ConditionKind.INDEX_BEHIND,
        ConditionKind.ROLE_ABSENT,
    )
)
"""Reasons of an unready process for which answers are those of an old block."""
_DEV_GRACE_SECONDS = 2.5
"""Shorter than in production: dev mode stops within 10 s, and its services stop after HTTP."""


def http_app(daemon: Daemon, is_dev: bool) -> App:
    """The public application. With `is_dev` pages on this machine may call it, also over HTTP."""
    http = daemon.settings.http
    policy = HttpPolicy(
        own_origins=frozenset(http.own_origins),
        proxies=Proxies(http.proxies_count, http.trusted_proxies),
        max_connections=http.max_connections,
        logs_requests=daemon.settings.log.access,
        explorer_url=_explorer_url(daemon),
        site_rest_prefix=daemon.settings.site.rest_prefix,
        site_namespace=daemon.settings.site.namespace,
    )
    if is_dev:
        policy = replace(
            policy,
            allow_loopback_origins=True,
            grace_seconds=_DEV_GRACE_SECONDS,
            requires_https=False,
        )
    return build_app(
        Services(
            events=daemon.events,
            health=lambda: _health(daemon),
            is_known_domain=lambda host: is_authorized(host, daemon.brands.domains),
            relays=daemon.relayer,
            perk_charges=daemon.perk_charges,
            constraints=daemon.constraints,
            pregeneration=daemon.pregeneration,
            domains=daemon.domains,
            payments=daemon.payments,
            limits=daemon.limits,
            site=daemon.site,
            is_known_brand=lambda brand: brand in daemon.brands.ids,
        ),
        policy,
        daemon.gate,
    )


def _explorer_url(daemon: Daemon) -> str | None:
    chain_id = daemon.relay_context.contracts.chain_id
    url = explorer_of(chain_id, daemon.settings.explorer_url)
    if url is None:
        log.warning(
            "explorer.unknown",
            chain=chain_id,
            reason="answers have no explorer link on this chain: set explorer_url",
        )
    return url


def admin_app(daemon: Daemon) -> App:
    token = daemon.settings.admin.token()
    return build_admin_app(
        AdminSources(
            process=daemon.process,
            cluster=lambda: _cluster(daemon),
            facts=lambda: _facts(daemon),
            lanes=lambda: lane_states(daemon),
            own=lambda: own_conditions(daemon),
            nodes=daemon.nodes.reports,
            measure=lambda: _measure(daemon),
        ),
        AdminPolicy(
            host=daemon.settings.admin.host,
            token=None if token is None else token.get_secret_value(),
            conditions=condition_policy(daemon),
        ),
    )


async def _cluster(daemon: Daemon) -> ClusterFacts:
    """A database that takes no writes counts as one that is away: nothing can be accepted."""
    async with session(daemon.pools.admin) as connection:
        await require_writes(connection)
        return await read_cluster(connection)


async def _facts(daemon: Daemon) -> StatusFacts:
    async with session(daemon.pools.admin) as connection:
        return await read_status(connection)


def _measure(daemon: Daemon) -> None:
    daemon.pools.measure()
    telemetry.TASKS.set(len(asyncio.all_tasks()))
    health.measure(daemon.nodes.reports())


async def _health(daemon: Daemon) -> Health:
    """Takes two seconds at most, also if every node accepts requests and never answers."""
    conditions, chain, identity = await asyncio.gather(
        _judged(daemon),
        health.probe(daemon.nodes, _HEALTH_SECONDS),
        _within_time(daemon.identity.ping()),
    )
    kinds = {condition.kind for condition in readiness.reasons(conditions)}
    return Health(
        database=ConditionKind.DATABASE_UNAVAILABLE not in kinds,
        blockchain=chain is not ChainState.UNAVAILABLE,
        identity_provider=identity and daemon.services.seconds_away(IDENTITY) is None,
        nodes_disagree=chain is ChainState.DEGRADED,
        index_is_old=bool(kinds & _OLD_INDEX),
    )


async def _judged(daemon: Daemon) -> tuple[Condition, ...]:
    """The conditions, as the admin server tells them; within the time of the health endpoint."""
    own = OwnView(
        daemon.process, tuple(own_conditions(daemon)), health.height(daemon.nodes.reports())
    )
    cluster: ClusterFacts | None = None
    with suppress(LtzdError, TimeoutError):
        async with asyncio.timeout(_HEALTH_SECONDS):
            cluster = await _cluster(daemon)
    return judge(cluster, own, condition_policy(daemon))


async def _within_time(ping: Awaitable[bool]) -> bool:
    try:
        async with asyncio.timeout(_HEALTH_SECONDS):
            return await ping
    except TimeoutError:
        return False

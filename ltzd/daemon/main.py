"""Runs the roles in one task group until a signal; a loop that fails begins again by itself.

On SIGTERM or SIGINT readiness ends first. After `[http] drain_seconds` the servers stop accepting
and finish their requests while the other roles still run, then the other roles end, then the
connections close. SIGHUP reloads the servers' certificates.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, TypeAlias

import structlog
import uvloop

from ltzd import __version__, telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.kept_loops import Loop, keep_running
from ltzd.concurrency.loggable_errors import first_cause
from ltzd.concurrency.outages import Outage
from ltzd.daemon import logs
from ltzd.daemon.assembly import Daemon, open_daemon
from ltzd.daemon.certificates import NO_CERTIFICATES, Certificates, tls_context
from ltzd.daemon.checks.installation import require_at_start
from ltzd.daemon.conditions import own_report
from ltzd.daemon.plain_connections import warn_of_plain_connections
from ltzd.daemon.processes import ProcessReporter
from ltzd.daemon.settings.listener import ListenerSettings
from ltzd.daemon.settings.settings import Settings
from ltzd.daemon.stop_signals import signals_blocked, stop_on_signals
from ltzd.daemon.surfaces import admin_app, http_app
from ltzd.daemon.tracing import exported_spans
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.http.sanic_app import App
from ltzd.http.server import require_free, serve
from ltzd.http.tls import ServerCertificate
from ltzd.operator.fleet.fleet import SettingsWallet
from ltzd.rules.relayer import gas_budgets
from ltzd.store.database import session
from ltzd.store.relayer import gas_budgets as gas_spending
from ltzd.store.wakeups import BRANDS

log = structlog.get_logger()

Wallets: TypeAlias = Sequence[SettingsWallet]

_READY_TIMEOUT_SECONDS = 5.0
_MEASURE_INTERVAL_SECONDS = 10.0
_BRANDS_SECONDS = 0.8
"""Between two searches for changed brands whose wake-up was lost."""


def run(settings: Settings) -> None:
    """Run until a signal. Raises Misconfigured, Unavailable, Broken."""
    logs.configure(settings.log.level, as_json=settings.log.as_json)
    warn_of_plain_connections(settings)
    warn_of_staging(settings)
    with signals_blocked():
        uvloop.run(_until_signal(settings))


def warn_of_staging(settings: Settings) -> None:
    if settings.staging:
        log.warning(
            "ltzd.staging",
            setting="staging",
            reason="outside services may be on this machine; never set staging in production",
        )


async def _until_signal(settings: Settings) -> None:
    """Make the checks of a start, then run; a signal also ends the checks."""
    stop, stop_now, certificates = asyncio.Event(), asyncio.Event(), NO_CERTIFICATES
    stop_on_signals(
        stop,
        on_hangup=lambda: certificates.renew(),  # noqa: PLW0108 - read when called
        on_repetition=stop_now.set,
    )
    async with AsyncExitStack() as stack:
        wallets = await _unless_stopped(require_at_start(settings, stack), stop)
        if wallets is None:
            return
        certificates = Certificates.of(settings)
        require_free_ports(settings)
        await run_roles(
            settings,
            stop,
            stop_now=stop_now,
            must_be_durable=True,
            certificates=certificates,
            settings_wallets=wallets,
        )


def require_free_ports(settings: Settings) -> None:
    """Raises Misconfigured if a port is taken, before this start has changed the database."""
    listeners: list[ListenerSettings] = [settings.admin]
    if "http" in settings.roles:
        listeners.append(settings.http)
    for listener in listeners:
        require_free(listener.host, listener.port)


async def _unless_stopped(
    checks: Coroutine[Any, Any, Wallets], stop: asyncio.Event
) -> Wallets | None:
    """The checks' result, or None if a signal has ended them."""
    checking, stopping = asyncio.create_task(checks), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((checking, stopping), return_when=asyncio.FIRST_COMPLETED)
        return checking.result() if checking.done() else None
    finally:
        checking.cancel()
        stopping.cancel()
        await asyncio.wait((checking, stopping))


async def run_roles(
    settings: Settings,
    stop: asyncio.Event,
    *,
    stop_now: asyncio.Event | None = None,
    is_dev: bool = False,
    must_be_durable: bool = False,
    on_ready: Callable[[], None] = lambda: None,
    certificates: Certificates = NO_CERTIFICATES,
    settings_wallets: Wallets | None = None,
) -> None:
    """Run all roles until `stop` is set; `settings_wallets` as `open_daemon` takes them.

    A process with the role http drains then and finishes its requests; once `stop_now` is set, it
    does not drain, and gives its requests few seconds.
    `on_ready` is called once the servers listen, the lanes are ready and blocks are followed, or
    after five seconds. Raises the error that ended a role, Misconfigured and Unavailable.
    """
    async with (
        exported_spans(settings.tracing),
        open_daemon(
            settings,
            is_dev=is_dev,
            must_be_durable=must_be_durable,
            settings_wallets=settings_wallets,
        ) as daemon,
    ):
        daemon.state.serves_with(certificates)
        reporter = ProcessReporter(
            daemon.pools.admin,
            daemon.process,
            lambda: own_report(daemon),
            on_clock=daemon.state.measured_clock,
        )
        closing, stop_now = asyncio.Event(), stop_now or asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                _show_build(settings.roles)
                loops = [
                    group.create_task(keep_running(name, loop))
                    for name, loop in [*_loops(daemon), ("process_report", reporter.run)]
                ]
                servers = _servers(daemon, closing, stop_now, certificates, is_dev=is_dev)
                serving = [group.create_task(server) for server, _ in servers]
                for _, is_listening in servers:
                    await is_listening.wait()
                await _wait_until_working(daemon)
                _begin_garbage_collection()
                log.info("ltzd.ready", version=__version__, roles=list(settings.roles))
                if not is_dev:
                    warn_of_unbounded_gas(settings)
                on_ready()
                await stop.wait()
                drain_seconds = 0.0 if is_dev else settings.http.drain_seconds
                await _drain(daemon, reporter, drain_seconds, stop_now)
                closing.set()
                log.info("ltzd.stopping")
                await asyncio.gather(*serving)
                for loop in loops:
                    loop.cancel()
            await reporter.forget()
        except BaseExceptionGroup as group_error:
            raise first_cause(group_error) from group_error
    log.info("ltzd.stopped")


async def _drain(
    daemon: Daemon, reporter: ProcessReporter, seconds: float, stop_now: asyncio.Event
) -> None:
    """Answer requests as before, but not ready, so that load balancers send no more of them.

    A process without the role http has nothing to wait for.
    """
    daemon.state.begin_drain()
    reporter.report_now()
    if "http" in daemon.settings.roles and seconds > 0:
        log.info("ltzd.draining", seconds=seconds)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop_now.wait(), seconds)


def warn_of_unbounded_gas(settings: Settings) -> None:
    """Log a warning for each gas budget that is 0, if this process serves relays."""
    if "http" in settings.roles:
        budgets = settings.relay.budgets()
        for sentence in gas_budgets.warnings_of(budgets, settings.operator.max_fee_wei):
            log.warning("relay.gas_unbounded", reason=sentence)


async def _wait_until_working(daemon: Daemon) -> None:
    """Wait until the lanes can sign and the indexer follows blocks, for a bounded time.

    An unavailable node, or another process that holds a lane, must not keep HTTP from serving.
    """
    deadline = loop_time() + _READY_TIMEOUT_SECONDS
    while loop_time() < deadline:
        operator, indexer = daemon.operator, daemon.indexer
        if (operator is None or operator.fleet.is_settled) and (
            indexer is None or indexer.follower.is_serving
        ):
            return
        await asyncio.sleep(0.02)


def _begin_garbage_collection() -> None:
    """Exempt the objects that start-up made, which live to the end: scanning them is waste.

    `ltzd run` starts with the collector off. No collection precedes the freeze: it would take a
    tenth of the start to find the little garbage that imports leave.
    """
    gc.freeze()
    # With 4,000 relays in flight collections take 2.5 % of the time; 5.8 % with 20,000.
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def _show_build(roles: Iterable[str]) -> None:
    """Set the metrics of this build and of the roles that the process runs."""
    telemetry.BUILD.info({"version": __version__})
    for role in roles:
        telemetry.ROLE_UP.labels(role).set(1)


def _loops(daemon: Daemon) -> list[tuple[str, Loop]]:
    """The loops of the process's roles, by their names."""
    loops: list[tuple[str, Loop]] = [
        ("wakeups", daemon.wakeups.listen),
        ("nodes", daemon.node_watch.run),
    ]
    if "http" in daemon.settings.roles:
        loops += [("events", daemon.events.run), ("hashes", daemon.hashes.run)]
        loops += [("relay_context", daemon.relay_context.run), ("relays", daemon.relayer.run)]
        loops += [("brands", partial(_refresh_brands, daemon))]
        loops += [("gas", partial(_measure_gas, daemon))]
        loops += [("limits", daemon.limits.watch), ("services", daemon.services.run)]
    if daemon.pools.replica is not None:
        loops.append(("replica", partial(daemon.replica.run, daemon.pools.replica)))
    for role in (daemon.operator, daemon.indexer, daemon.deliveries):
        if role is not None:
            loops += role.loops()
    return loops


def _servers(
    daemon: Daemon,
    stop: asyncio.Event,
    stop_now: asyncio.Event,
    certificates: Certificates,
    *,
    is_dev: bool,
) -> list[tuple[Coroutine[Any, Any, None], asyncio.Event]]:
    """The admin server, and the public one if this process has that role.

    The event beside each server is set once it listens.
    """
    settings = daemon.settings
    listeners: list[tuple[App, ListenerSettings, ServerCertificate | None]] = [
        (admin_app(daemon), settings.admin, certificates.admin)
    ]
    if "http" in settings.roles:
        listeners.append((http_app(daemon, is_dev), settings.http, certificates.public))
    servers = []
    for app, listener, certificate in listeners:
        is_listening = asyncio.Event()
        server = serve(
            *(app, listener.host, listener.port, stop),
            on_listening=_setter(is_listening),
            tls=tls_context(certificate),
            draining=None if is_dev else daemon.state.draining,
            stop_now=stop_now,
        )
        servers.append((server, is_listening))
    return servers


def _setter(event: asyncio.Event) -> Callable[[int], None]:
    return lambda _port: event.set()


async def _refresh_brands(daemon: Daemon) -> None:
    """Put a change of a brand in force within a second."""
    wakeup = daemon.wakeups.subscribe(BRANDS)
    outage = Outage("brands.refresh_failed", "brands.refresh_works")
    while True:
        await wakeup.wait(_BRANDS_SECONDS)
        try:
            async with session(daemon.pools.admin) as connection:
                await daemon.brands.refresh(connection)
        except (DatabaseUnavailable, Misconfigured) as error:
            outage.failed(error.message)
        else:
            outage.over()


async def _measure_gas(daemon: Daemon) -> None:
    """Measure the gas cost of today's relays for the metrics."""
    outage = Outage("gas.measurement_failed", "gas.measurement_works")
    telemetry.RELAY_GAS_BUDGET_WEI.set(daemon.settings.relay.total_gas_budget_wei_per_day)
    while True:
        try:
            async with session(daemon.pools.admin) as connection:
                spent = await gas_spending.spent(connection, [])
            telemetry.RELAY_GAS_SPENT_WEI.set(spent.total_wei)
        except DatabaseUnavailable as error:
            outage.failed(error.message)
        else:
            outage.over()
        await asyncio.sleep(_MEASURE_INTERVAL_SECONDS)

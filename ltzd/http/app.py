"""The public HTTP application: every surface, and the middleware around each request.

The middleware gives each request an id (the caller's `X-Request-Id` if it is well-formed), shown in
the response and in logs, applies CORS, and observes the duration. The middleware also runs for
refused requests and unknown paths. Sanic's signals are not used: they cost more than all of this.
"""

import itertools
import math
import secrets
from collections.abc import Coroutine
from email.utils import formatdate
from time import perf_counter, time
from types import SimpleNamespace
from typing import Any, cast

import structlog
from sanic.compat import Header
from sanic.request import Request
from sanic.response import HTTPResponse

from ltzd import telemetry, tracing
from ltzd.concurrency.answer_age import answer_age, begin_answer
from ltzd.concurrency.request_ids import begin_request
from ltzd.errors import LtzdError
from ltzd.http.admission.admission import Admission
from ltzd.http.admission.askers import Askers
from ltzd.http.admission.gate import AdmissionGate
from ltzd.http.admission.refusals import REQUEST_ID, EarlyRefusals, ReplyTo
from ltzd.http.connections.limit import ConnectionLimit, most_connections
from ltzd.http.connections.pace import RefusalPace
from ltzd.http.connections.sweep import Sweep
from ltzd.http.constraints import handlers as constraints
from ltzd.http.constraints import operations as constraint_operations
from ltzd.http.errors import ErrorResponder, RequestMalformed, http_error_of, path_of
from ltzd.http.event_handler import domain_verification
from ltzd.http.event_handler import handlers as event_handler
from ltzd.http.event_handler import operations as event_operations
from ltzd.http.openapi import pages as docs
from ltzd.http.openapi.operations import Operation
from ltzd.http.payments import handlers as payments
from ltzd.http.payments import operations as payment_operations
from ltzd.http.perk_charges import handlers as perk_charges
from ltzd.http.perk_charges import operations as perk_charge_operations
from ltzd.http.pregeneration import handlers as pregeneration
from ltzd.http.pregeneration import operations as pregeneration_operations
from ltzd.http.relayer import errors as relayer_errors
from ltzd.http.relayer import handlers as relayer
from ltzd.http.relayer import operations as relay_operations
from ltzd.http.relayer.address_limit import AddressLimit
from ltzd.http.requests.client_address import client_class, network_of, refuse_plain_http
from ltzd.http.requests.cors import Cors
from ltzd.http.requests.header_form import closing_fault
from ltzd.http.requests.host_header import refuse_bad_host
from ltzd.http.requests.rate_limits import window_headers
from ltzd.http.responses import Reply
from ltzd.http.sanic_app import App, new_app
from ltzd.http.services import HttpPolicy, Services
from ltzd.http.site_plugin import handlers as site_plugin
from ltzd.http.site_plugin import link_operations as site_link_operations
from ltzd.http.site_plugin import links as site_links
from ltzd.http.site_plugin import operations as site_operations
from ltzd.http.site_plugin.handlers import NONCE_HEADER
from ltzd.http.site_plugin.own_paths import OwnPaths
from ltzd.http.surface import READ_METHODS, Surface
from ltzd.http.tracker import handlers as tracker
from ltzd.http.tracker import operations as tracker_operations

log = structlog.get_logger()


def operations(policy: HttpPolicy) -> tuple[Operation, ...]:
    """Every documented operation."""
    return (
        *event_operations.OPERATIONS,
        *tracker_operations.OPERATIONS,
        *domain_verification.OPERATIONS,
        *payment_operations.OPERATIONS,
        *pregeneration_operations.OPERATIONS,
        *relay_operations.OPERATIONS,
        *site_link_operations.OPERATIONS,
        *perk_charge_operations.OPERATIONS,
        *constraint_operations.OPERATIONS,
        *site_operations.operations(policy),
    )


def build_app(services: Services, policy: HttpPolicy, gate: AdmissionGate | None = None) -> App:
    """The application. `gate` admits its requests; without one it makes its own."""
    cors = Cors(policy, services.is_known_domain, {site_links.PATH: site_links.CORS_METHODS})
    address_limit = AddressLimit(
        services.limits, (relayer.PATH, site_links.PATH), policy.per_client.relayer
    )
    surfaces = _surfaces(services, policy, cors, address_limit)
    formats = [entry for surface in surfaces for entry in surface.error_formats]
    errors = ErrorResponder(relayer_errors.ERRORS, formats, always_allowed=frozenset({"OPTIONS"}))
    app = new_app("ltzd-http", errors)
    app.ctx.canonical_target = OwnPaths(services.site.members, policy.site_base).canonical
    app.ctx.grace_seconds = policy.grace_seconds
    app.ctx.body_seconds = policy.body_seconds
    app.ctx.proxies = policy.proxies
    gate = gate or AdmissionGate()
    askers = Askers(services, policy)
    app.ctx.admission = Admission(gate, askers, address_limit.busy_window)
    app.ctx.refusals = EarlyRefusals(
        gate,
        askers,
        lambda peer, forwarded: network_of(peer, forwarded, policy.proxies),
        _early_replies(errors, cors, address_limit),
    )
    most = most_connections(policy.max_connections)
    telemetry.HTTP_CONNECTIONS_LIMIT.set(most)
    connections = ConnectionLimit(most)
    app.ctx.connection_limit = connections
    pace = RefusalPace(lambda: gate.refuses, policy.proxies.is_trusted_peer)
    app.ctx.refusal_pace = pace
    app.ctx.loops = (gate.run, Sweep(connections).run, pace.run)
    install_middleware(app, cors, address_limit, policy)
    for surface in surfaces:
        app.blueprint(surface.blueprint)
    return app


def _early_replies(errors: ErrorResponder, cors: Cors, address_limit: AddressLimit) -> ReplyTo:
    """Reply with the headers that the middleware would add."""

    def reply_to(error: LtzdError, path: str, origin: str | None) -> Reply:
        reply = errors.reply(http_error_of(error), path)
        cors.apply(origin, reply.headers, path)
        window = address_limit.busy_window(path, error)
        if window is not None:
            reply.headers.update(window_headers(window))
        return reply

    return reply_to


def _surfaces(
    services: Services, policy: HttpPolicy, cors: Cors, address_limit: AddressLimit
) -> tuple[Surface, ...]:
    limits, site, per_client = services.limits, services.site, policy.per_client
    return (
        site_plugin.surface(site, limits, policy.site_rest, policy.site_base),
        event_handler.surface(services),
        tracker.surface(),
        domain_verification.surface(services.domains, limits, per_client.domain_verifications),
        payments.surface(services.payments, limits, per_client, policy.explorer_url),
        pregeneration.surface(services.pregeneration, limits, per_client.pregenerations),
        relayer.surface(services.relays, cors, policy.explorer_url),
        site_links.surface(site.links, cors),
        perk_charges.surface(services.perk_charges, address_limit),
        constraints.surface(services.constraints, limits, per_client.keyless_invalidations),
        docs.surface(operations(policy)),
    )


class _RequestIds:
    """Unique ids without a system call for randomness per request."""

    def __init__(self) -> None:
        self._process = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def of(self, request: Request) -> str:
        header = request.headers.getone("x-request-id", None)
        if header is not None and REQUEST_ID.fullmatch(header):
            return str(header)
        return f"{self._process}-{next(self._numbers):x}"


def _log_request(request: Request, response: HTTPResponse) -> None:
    """The line names the route's template: a path may hold an e-mail address."""
    begun = getattr(request.ctx, "begun", None)
    log.info(
        "http.request",
        method=request.method,
        route=_route_of(request),
        status=response.status,
        ms=None if begun is None else round(1000 * (perf_counter() - begun), 1),
        bytes=len(response.body or b""),
        client=client_class(request),
        request_id=getattr(request.ctx, "id", None),
    )


def _end_trace(request: Request, response: HTTPResponse) -> None:
    tracing.end_request(
        {
            "http.request.method": request.method,
            "http.route": _route_of(request),
            "http.response.status_code": response.status,
            "ltzd.request_id": getattr(request.ctx, "id", ""),
        },
        has_failed=response.status >= 500,
    )


def _route_of(request: Request) -> str:
    return "unknown" if request.route is None else request.route.path


class _Dates:
    """The Date header (RFC 9110, 6.6.1), formatted once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def now(self) -> str:
        second = int(time())
        if second != self._second:
            self._second, self._text = second, formatdate(second, usegmt=True)
        return self._text


class _Durations:
    """Keeps the metric's child per route and status class: a look-up costs an observation."""

    def __init__(self) -> None:
        self._children: dict[tuple[str, int], Any] = {}

    def observe(self, request: Request, status: int, seconds: float) -> None:
        route = _route_of(request)
        key = (route, status // 100)
        child = self._children.get(key)
        if child is None:
            child = telemetry.HTTP_REQUEST_SECONDS.labels(route, f"{key[1]}xx")
            self._children[key] = child
        child.observe(seconds)


def _add_context_headers(context: SimpleNamespace, headers: Header) -> None:
    """Add what the handler learned before it replied or failed: nonce, rate window and age."""
    age = answer_age()
    if age is not None:
        headers["Age"] = str(math.ceil(age))  # RFC 9111, 5.1
    if hasattr(context, "nonce"):
        headers[NONCE_HEADER] = context.nonce
    if hasattr(context, "window"):
        for name, value in window_headers(context.window).items():
            headers.setdefault(name, value)  # an error's own window is the one exceeded


class _Entrance:
    """What a request passes before its handler: the gate, the address's limit, and its own form."""

    def __init__(
        self, admission: Admission, address_limit: AddressLimit, *, requires_https: bool
    ) -> None:
        self._admission = admission
        self._address_limit = address_limit
        self._requires_https = requires_https

    def enter(
        self, request: Request, *, is_new: bool
    ) -> HTTPResponse | Coroutine[Any, Any, HTTPResponse | None] | None:
        """Not a coroutine for events: creating one would cost more than the whole function."""
        fault = closing_fault(request)
        has_handler = is_new and request.route is not None
        waiting = self._admission.begin(request) if has_handler else None
        if waiting is not None or self._address_limit.applies_to(request):
            return self._enter_later(request, waiting, fault)
        return self._check(request, fault)

    async def _enter_later(
        self,
        request: Request,
        waiting: Coroutine[Any, Any, None] | None,
        fault: RequestMalformed | None,
    ) -> HTTPResponse | None:
        if waiting is not None:
            await waiting
        if self._address_limit.applies_to(request):
            await self._address_limit.count(request)
        return self._check(request, fault)

    def _check(self, request: Request, fault: RequestMalformed | None) -> HTTPResponse | None:
        if fault is not None:
            raise fault
        refuse_bad_host(request)
        if request.method == "OPTIONS":
            # Spec 5: every path answers a preflight. Over plain HTTP too: it discloses nothing, and
            # without it a page cannot read why its request is refused.
            return Reply(status=204)
        if self._requires_https:
            refuse_plain_http(request)
        return None


def install_middleware(
    app: App, cors: Cors, address_limit: AddressLimit, policy: HttpPolicy
) -> None:
    entrance = _Entrance(app.ctx.admission, address_limit, requires_https=policy.requires_https)
    ids = _RequestIds()
    durations = _Durations()
    dates = _Dates()

    def begin(request: Request) -> HTTPResponse | Coroutine[Any, Any, HTTPResponse | None] | None:
        context = request.ctx
        is_new = not hasattr(context, "begun")  # Sanic calls it again for an early failure
        context.begun = perf_counter()
        context.id = ids.of(request)
        # A connection serves its requests in one task, so each overwrites the id of the last.
        begin_request(context.id)
        begin_answer()
        tracing.begin_request()
        return entrance.enter(request, is_new=is_new)

    def end(request: Request, response: HTTPResponse) -> None:
        context = request.ctx
        if hasattr(context, "slot"):
            context.slot.release()  # a client that does not read its answer holds no slot
        headers = response.headers
        headers["Date"] = dates.now()
        cors.apply(
            request.headers.getone("origin", None),
            headers,
            path_of(request),
            is_preflight=request.method == "OPTIONS",
        )
        if request.method in READ_METHODS:
            # A response that says nothing may be stored, and some caches do so for minutes.
            headers.setdefault("Cache-Control", "no-store")
        _add_context_headers(context, headers)
        if hasattr(context, "begun"):  # Sanic skips `begin` for a request that timed out
            headers["X-Request-Id"] = context.id
            durations.observe(request, response.status, perf_counter() - context.begun)
        if policy.logs_requests:
            _log_request(request, response)
        if tracing.is_on():
            _end_trace(request, response)

    app.register_middleware(begin, "request")
    app.register_middleware(cast("Any", end), "response")  # Sanic's type requires a return value

"""The public HTTP server's application: every surface, with what surrounds each request.

Around a request: an id (the caller's `X-Request-Id` if it is sane) in answer and logs, CORS, and a
duration in the metrics. Sanic's signals cost more than all of this, so none is used; middleware
runs for refusals too, also for those of unknown paths.
"""

import itertools
import re
import secrets
from collections.abc import Coroutine
from time import perf_counter
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import structlog
from sanic import Sanic
from sanic.compat import Header
from sanic.config import Config
from sanic.exceptions import SanicException
from sanic.http import Http
from sanic.request import Request
from sanic.response import HTTPResponse

from ltzd import telemetry
from ltzd.http.constraints import handlers as constraints
from ltzd.http.errors import OwnAnswers, Refusals, path_of
from ltzd.http.event_handler import domain_verification
from ltzd.http.event_handler import handlers as event_handler
from ltzd.http.openapi import pages as docs
from ltzd.http.openapi.operations import Operation
from ltzd.http.payments import handlers as payments
from ltzd.http.payments import operations as payment_operations
from ltzd.http.perk_charges import handlers as perk_charges
from ltzd.http.perk_charges import operations as perk_operations
from ltzd.http.pregeneration import handlers as pregeneration
from ltzd.http.pregeneration import operations as pregeneration_operations
from ltzd.http.relayer import handlers as relayer
from ltzd.http.relayer import operations as relay_operations
from ltzd.http.relayer.handlers import ClientLimit, window_headers
from ltzd.http.requests.client_address import refuse_plain_http
from ltzd.http.requests.cors import Cors
from ltzd.http.requests.host_header import refuse_bad_host
from ltzd.http.requests.json_body import READ_AWAY_LIMIT
from ltzd.http.responses import Reply
from ltzd.http.services import HttpPolicy, Services
from ltzd.http.site_plugin import handlers as site_plugin
from ltzd.http.site_plugin import link_operations as site_link_operations
from ltzd.http.site_plugin import links as site_links
from ltzd.http.site_plugin import operations as site_operations
from ltzd.http.site_plugin.errors import SiteErrors
from ltzd.http.site_plugin.handlers import NONCE

App: TypeAlias = Sanic[Config, SimpleNamespace]

RESPONSE_TIMEOUT_SECONDS = 90
"""Above our longest wait: at its own timeout Sanic answers 503 whatever the handler did."""

HEAD_LIMIT = 32_768
"""Bytes of a request's line and headers: a token may be long, and its refusal is a 401."""

Http.HEADER_CEILING = HEAD_LIMIT  # the library's own bound on what its setting may say

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def operations(policy: HttpPolicy) -> tuple[Operation, ...]:
    """Everything that is documented."""
    return (
        *event_handler.OPERATIONS,
        *domain_verification.OPERATIONS,
        *payment_operations.OPERATIONS,
        *pregeneration_operations.OPERATIONS,
        *relay_operations.OPERATIONS,
        *site_link_operations.OPERATIONS,
        *perk_operations.OPERATIONS,
        *constraints.OPERATIONS,
        *site_operations.operations(policy),
    )


OPERATIONS = operations(HttpPolicy())

_app_numbers = itertools.count(1)


def build_app(services: Services, policy: HttpPolicy) -> App:
    site_errors = SiteErrors(policy.site_rest, policy.site_base)
    app = new_app("ltzd-http", frozenset({"OPTIONS"}), site_errors)
    app.ctx.grace_seconds = policy.grace_seconds
    app.ctx.proxies = policy.proxies
    cors = Cors(policy, services.is_known_domain)
    client_limit = ClientLimit(services.limits)
    _surround(app, cors, client_limit, policy.requires_https)
    app.blueprint(event_handler.surface(services))
    app.blueprint(relayer.surface(services.relays, cors, policy.explorer_url))
    app.blueprint(perk_charges.surface(services.perk_charges, client_limit))
    app.blueprint(site_links.surface(services.site.links, cors))
    app.blueprint(constraints.surface(services.constraints, services.limits))
    app.blueprint(domain_verification.surface(services.domains, services.limits))
    app.blueprint(payments.surface(services.payments, services.limits, policy.explorer_url))
    app.blueprint(pregeneration.surface(services.pregeneration, services.limits))
    app.blueprint(site_plugin.surface(services.site, services.limits, policy.site_base))
    app.blueprint(docs.surface(operations(policy)))
    return app


def new_app(
    name: str, always_allowed: frozenset[str] = frozenset(), own_answers: OwnAnswers | None = None
) -> App:
    """Sanic wants one name per app in a process, and tests build many."""
    app: App = Sanic(
        f"{name}-{next(_app_numbers)}",
        config=Config(
            {
                "ACCESS_LOG": False,
                "AUTO_EXTEND": False,
                "MOTD": False,
                "REQUEST_MAX_HEADER_SIZE": HEAD_LIMIT,
                "REQUEST_MAX_SIZE": READ_AWAY_LIMIT,
                "REQUEST_TIMEOUT": 30,
                "RESPONSE_TIMEOUT": RESPONSE_TIMEOUT_SECONDS,
            },
            env_prefix=None,  # daemon/settings/settings.py alone reads the environment
        ),
        error_handler=Refusals(always_allowed, own_answers),
        request_class=AnswerableRequest,
        configure_logging=False,
    )
    return app


class AnswerableRequest(Request):
    """Sanic answers a head it cannot read with a made-up request.

    That has the same URL, even one that cannot be parsed, and does not know whom it is from.
    """

    def __init__(self, url_bytes: bytes, *args: Any, **options: Any) -> None:
        try:
            super().__init__(url_bytes, *args, **options)
        except SanicException:
            if options.get("method") != "NONE":
                raise
            super().__init__(b"*", *args, **options)
        if options.get("method") == "NONE":
            self.conn_info = options["transport"].get_protocol().conn_info


class _RequestIds:
    """Unique without asking the kernel for randomness each time."""

    def __init__(self) -> None:
        self._process = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def of(self, request: Request) -> str:
        given = request.headers.getone("x-request-id", None)
        if given is not None and _SANE_ID.fullmatch(given):
            return str(given)
        return f"{self._process}-{next(self._numbers):x}"


class _Durations:
    """Keeps each route's and status class's child: a look-up costs as much as an observation."""

    def __init__(self) -> None:
        self._children: dict[tuple[str, int], Any] = {}

    def observe(self, request: Request, status: int, seconds: float) -> None:
        route = "unknown" if request.route is None else request.route.path
        key = (route, status // 100)
        child = self._children.get(key)
        if child is None:
            child = telemetry.HTTP_REQUEST_SECONDS.labels(route, f"{key[1]}xx")
            self._children[key] = child
        child.observe(seconds)


def _tell_of(context: SimpleNamespace, headers: Header) -> None:
    """What was learned on the way to the answer, or to a refusal."""
    if hasattr(context, "nonce"):
        headers[NONCE] = context.nonce
    if hasattr(context, "window"):
        for name, value in window_headers(context.window).items():
            headers.setdefault(name, value)  # a refusal's own tell more


def _surround(app: App, cors: Cors, client_limit: ClientLimit, requires_https: bool) -> None:
    ids = _RequestIds()
    durations = _Durations()

    def begin(request: Request) -> HTTPResponse | Coroutine[Any, Any, HTTPResponse | None] | None:
        context = request.ctx
        context.begun = perf_counter()
        context.id = ids.of(request)
        # A connection serves its requests in one task: each overwrites its predecessor's id.
        structlog.contextvars.bind_contextvars(request_id=context.id)
        # No coroutine for events: making one costs them more than all of this.
        return admit_counted(request) if client_limit.counts(request) else admit(request)

    async def admit_counted(request: Request) -> HTTPResponse | None:
        await client_limit.count(request)
        return admit(request)

    def admit(request: Request) -> HTTPResponse | None:
        refuse_bad_host(request)
        if request.method == "OPTIONS":
            # Spec 5: a preflight is answered on every path. Over http too: it tells nothing, and
            # only so may the page read why the request after it is refused.
            return Reply(status=204)
        if requires_https:
            refuse_plain_http(request)
        return None

    def end(request: Request, response: HTTPResponse) -> None:
        context = request.ctx
        headers = response.headers
        cors.apply(
            request.headers.getone("origin", None),
            headers,
            path_of(request),
            is_preflight=request.method == "OPTIONS",
        )
        _tell_of(context, headers)
        if hasattr(context, "begun"):  # Sanic skips `begin` for a request that timed out
            headers["X-Request-Id"] = context.id
            durations.observe(request, response.status, perf_counter() - context.begun)

    app.register_middleware(begin, "request")
    app.register_middleware(cast("Any", end), "response")  # its type wants a replacement

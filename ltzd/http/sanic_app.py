"""Creates Sanic applications with ltzd's settings."""

import itertools
from types import SimpleNamespace
from typing import Any, TypeAlias

from sanic import Sanic
from sanic.config import Config
from sanic.exceptions import SanicException
from sanic.http import Http
from sanic.request import Request

from ltzd.http.connections.limit import ConnectionLimit
from ltzd.http.connections.sweep import Sweep
from ltzd.http.errors import ErrorResponder
from ltzd.http.requests.json_body import DRAIN_LIMIT

App: TypeAlias = Sanic[Config, SimpleNamespace]

RESPONSE_TIMEOUT_SECONDS = 90
"""Longer than any handler waits: at this timeout Sanic answers 503 in the handler's place."""

HEAD_LIMIT = 32_768
"""Bytes of the request line and headers. A long token must fit, so that its refusal is a 401."""

Http.HEADER_CEILING = HEAD_LIMIT  # Sanic's upper bound of REQUEST_MAX_HEADER_SIZE

_ADMIN_CONNECTIONS = 256
"""Connections to an application that sets no limit of its own."""

_BODY_SECONDS = 30.0
"""Until a body must have arrived at an application that sets no time of its own."""

_app_numbers = itertools.count(1)


def new_app(name: str, errors: ErrorResponder) -> App:
    app: App = Sanic(
        f"{name}-{next(_app_numbers)}",  # Sanic requires unique names, and tests build many apps
        config=Config(
            {
                "ACCESS_LOG": False,
                "AUTO_EXTEND": False,
                "MOTD": False,
                "REQUEST_MAX_HEADER_SIZE": HEAD_LIMIT,
                "REQUEST_MAX_SIZE": DRAIN_LIMIT,
                "REQUEST_TIMEOUT": 30,
                "RESPONSE_TIMEOUT": RESPONSE_TIMEOUT_SECONDS,
            },
            env_prefix=None,  # only daemon/settings/settings.py reads the environment
        ),
        error_handler=errors,
        request_class=AnswerableRequest,
        configure_logging=False,
    )
    app.ctx.admission = None
    app.ctx.body_seconds = _BODY_SECONDS
    app.ctx.draining = None
    app.ctx.refusals = None
    app.ctx.canonical_target = None
    app.ctx.connection_limit = ConnectionLimit(_ADMIN_CONNECTIONS)
    app.ctx.loops = (Sweep(app.ctx.connection_limit, is_measured=False).run,)
    app.register_middleware(_end_connection_while_draining, "request")
    return app


def _end_connection_while_draining(request: Request) -> None:
    draining = request.app.ctx.draining
    if draining is not None and draining.is_set():
        stream: Any = request.stream
        stream.keep_alive = False


class AnswerableRequest(Request):
    """Lets Sanic answer a head that it cannot parse, and exchanges a site's own path.

    Sanic answers such a head through a stand-in request with the method NONE and the same URL. Here
    the stand-in also works if the URL itself cannot be parsed. The path is decoded once, and not at
    each access.
    """

    __slots__ = ("path",)

    def __init__(self, url_bytes: bytes, *args: Any, **options: Any) -> None:
        canonical = options["app"].ctx.canonical_target
        is_stand_in = options.get("method") == "NONE" and not options.get("head")
        try:
            if canonical is not None:
                url_bytes = canonical(url_bytes, options["headers"])
            super().__init__(url_bytes, *args, **options)
        except SanicException:
            if not is_stand_in:
                raise
            super().__init__(b"*", *args, **options)
        # An absolute URL may end with its host, and means the root then (RFC 9112 3.2.1).
        path = self._parsed_url.path or b"/"
        self.path = path.decode()  # type: ignore[misc] # a slot in the property's place

"""Warns at every start of connections over a network that need no encryption: they are allowed."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import structlog

from ltzd.daemon.settings.settings import Settings
from ltzd.daemon.settings.value_types import is_loopback

log = structlog.get_logger()

_ENCRYPTED_SCHEMES = frozenset(("https", "rediss", "unix"))
_ENCRYPTED_MODES = frozenset(("require", "verify-ca", "verify-full"))


def warn_of_plain_connections(settings: Settings) -> None:
    for name in plain_listeners(settings):
        log.warning(
            "http.plain",
            setting=f"{name}.plain_http",
            reason="others can read and change what goes over the network",
        )
    for name in plain_clients(settings):
        log.warning(
            "connection.plain",
            setting=name,
            reason="the URL demands no encryption, and another machine is asked",
        )


def plain_listeners(settings: Settings) -> Iterator[str]:
    if "http" in settings.roles and settings.http.serves_others_plainly:
        yield "http"
    if settings.admin.is_open_to_others:
        yield "admin"


def plain_clients(settings: Settings) -> Iterator[str]:
    """The settings whose URLs lead to another machine without TLS."""
    urls = {
        "database_url": settings.database_url,
        "redis_url": settings.redis_url,
        "node.rpc_url": settings.node.rpc_url,
    }
    for name, url in urls.items():
        if url is not None and not _is_safe(url.get_secret_value()):
            yield name


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    host = parts.hostname or query.get("host", [""])[0]
    # PostgreSQL's clients take a missing host, or one that is a path, for a local socket.
    if not host or host.startswith(("/", "%2f", "%2F")) or is_loopback(host):
        return True
    if parts.scheme in {"postgresql", "postgres"}:
        return query.get("sslmode", [""])[-1] in _ENCRYPTED_MODES
    return parts.scheme in _ENCRYPTED_SCHEMES

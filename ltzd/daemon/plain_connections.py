"""Warns at every start of connections to other machines that are not encrypted."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import structlog

from ltzd.daemon.settings.settings import Settings
from ltzd.daemon.settings.value_types import is_loopback
from ltzd.rules.database_urls import each_server

log = structlog.get_logger()

_ENCRYPTED_SCHEMES = frozenset(("https", "rediss", "unix"))
_ENCRYPTED_MODES = frozenset(("require", "verify-ca", "verify-full"))


def warn_of_plain_connections(settings: Settings) -> None:
    for name in plain_listeners(settings):
        log.warning(
            "http.plain",
            setting=f"{name}.plain_http",
            reason="the server speaks plain HTTP; others on the network can read and change it",
        )
    for name in plain_clients(settings):
        log.warning(
            "connection.plain",
            setting=name,
            reason="the URL leads to another machine and does not require encryption",
        )


def plain_listeners(settings: Settings) -> Iterator[str]:
    if "http" in settings.roles and settings.http.serves_others_plainly:
        yield "http"
    if settings.admin.is_open_to_others:
        yield "admin"


def plain_clients(settings: Settings) -> Iterator[str]:
    """The names of settings whose URLs lead to another machine without TLS."""
    urls = {
        "database_url": settings.database_url,
        "database.pooled_url": settings.database.pooled_url,
        "database.replica_url": settings.database.replica_url,
        "redis_url": settings.redis_url,
    }
    if settings.node.rpc_url is not None:
        urls["node.rpc_url"] = settings.node.rpc_url
    urls |= {f"node.urls[{place}]": url for place, url in enumerate(settings.node.urls or ())}
    for name, url in urls.items():
        if url is not None and not all(
            _is_encrypted_or_local(each) for each in each_server(url.get_secret_value())
        ):
            yield name


def _is_encrypted_or_local(url: str) -> bool:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    host = parts.hostname or query.get("host", [""])[0]
    # For PostgreSQL's clients a missing host, or a path as the host, is a local socket.
    if not host or host.startswith(("/", "%2f", "%2F")) or is_loopback(host):
        return True
    if parts.scheme in {"postgresql", "postgres"}:
        return query.get("sslmode", [""])[-1] in _ENCRYPTED_MODES
    return parts.scheme in _ENCRYPTED_SCHEMES

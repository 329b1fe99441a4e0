"""The open connections of a server, in the order of their last use, up to a bound.

At the bound a new connection ends another that does no work: a server may close an idle connection
at any time (RFC 9112 9.3), and ltzd has accepted nothing on one whose request has not arrived.
"""

import resource
from itertools import islice
from typing import Any

import structlog

from ltzd import telemetry

log = structlog.get_logger()

RESERVED_FILES = 512
"""Files left for everything else: database, Redis, nodes, logs."""
DEFAULT_MOST = 16_384
_SCANNED = 64
"""The most connections that are scanned, from the least recently used on, for one to end."""


def most_connections(wanted: int = DEFAULT_MOST) -> int:
    """The connections that the process may keep open; raises its soft limit of files for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    most = max(64, soft - RESERVED_FILES)
    log.warning("http.few_files", files=soft, connections=most, reason="the limit of open files")
    return most


class ConnectionLimit:
    def __init__(self, most: int = DEFAULT_MOST) -> None:
        self._most = most
        self._all: dict[Any, None] = {}
        self._by_address: dict[str, dict[Any, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def all(self) -> tuple[Any, ...]:
        """Every open connection, the least recently used first."""
        return tuple(self._all)

    def opened(self, connection: Any, address: str) -> bool:
        """Return False if the connection must be refused, because every other one is in use.

        A connection is opened once, before its TLS handshake or after it.
        """
        if connection in self._all:
            return True
        if len(self._all) >= self._most and not self._make_room(address):
            telemetry.HTTP_CONNECTIONS_ENDED.labels("refused").inc()
            return False
        self._all[connection] = None
        self._by_address.setdefault(address, {})[connection] = None
        return True

    def used(self, connection: Any, address: str) -> None:
        """The connection was answered just now."""
        for connections in (self._all, self._by_address.get(address, {})):
            if connection in connections:
                del connections[connection]
                connections[connection] = None

    def closed(self, connection: Any, address: str) -> None:
        self._all.pop(connection, None)
        own = self._by_address.get(address)
        if own is not None:
            own.pop(connection, None)
            if not own:
                del self._by_address[address]

    def _make_room(self, address: str) -> bool:
        """An address with more connections than an equal share loses one of its own."""
        own = self._by_address.get(address, {})
        has_many = len(own) > len(self._all) / len(self._by_address)
        for connection in islice(own if has_many else self._all, _SCANNED):
            if not connection.is_at_work:
                telemetry.HTTP_CONNECTIONS_ENDED.labels("room").inc()
                connection.end_now()
                return True
        return False

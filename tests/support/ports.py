"""Ports that tests choose for servers which they start later, or again.

ltzd itself takes other ports for its services (`ltzd.dev.services.ports`), and each worker of each
run that goes on has its own part of these. So no other test or instance takes a port between its
choice and its use.
"""

import fcntl
import itertools
import os
import tempfile
from functools import cache
from pathlib import Path

from ltzd.dev.services import ports

_ALL = range(10_000, 15_000)
_BLOCK = 200
_FORBIDDEN = 10_080
"""Browsers open no page at this port (Fetch standard, port blocking)."""


def free_port() -> int:
    """A free port, chosen again only once all others of this process were."""
    in_turn = _own_ports()
    return next(port for port in itertools.islice(in_turn, _BLOCK) if ports.is_free(port))


@cache
def _own_ports() -> "itertools.cycle[int]":
    """Locks a block of ports until this process and all that it has forked have ended."""
    for first in range(_ALL.start, _ALL.stop, _BLOCK):
        if _lock(Path(tempfile.gettempdir()) / f"ltzd-test-ports-{first}"):
            own = range(first, first + _BLOCK)
            return itertools.cycle(port for port in own if port != _FORBIDDEN)
    raise AssertionError(f"other test runs have all ports from {_ALL.start} to {_ALL.stop}")


def _lock(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    return True

"""Ports that tests choose for servers which they start later, or again.

ltzd itself takes other ports for its services (`ltzd.dev.services.ports`), and each worker of a run
has its own part of these. So no other test or instance takes a port between its choice and its use.
"""

import itertools
import os

from ltzd.dev.services import ports

_FORBIDDEN = 10_080
"""Browsers open no page at this port (Fetch standard, port blocking)."""
_ALL = [port for port in range(10_000, 15_000) if port != _FORBIDDEN]
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_OWN = _ALL[_WORKER::_WORKERS]
_in_turn = itertools.cycle(_OWN)


def free_port() -> int:
    """A free port, chosen again only once all others were."""
    return next(port for port in itertools.islice(_in_turn, len(_OWN)) if ports.is_free(port))

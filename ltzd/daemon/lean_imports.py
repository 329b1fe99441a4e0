"""Imports libraries without the optional packages that they load only because these are installed.

structlog loads rich and greenlet, and redis loads OpenTelemetry's SDK: 8 MiB that a daemon never
uses: the daemon logs JSON or structlog's own text, and measures Redis itself. The packages can
still be imported afterwards, for example for traces.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

_UNUSED = {
    "structlog": ("rich", "greenlet"),
    "redis.asyncio": ("opentelemetry",),
}
"""By library, the packages that it need not find."""


def import_lean() -> None:
    """Call this before anything else imports these libraries."""
    for library, packages in _UNUSED.items():
        with _hidden(packages):
            import_module(library)


@contextmanager
def _hidden(packages: tuple[str, ...]) -> Iterator[None]:
    """Within the block, imports of packages that are not imported yet fail."""
    hidden = [name for name in packages if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment] # Python's own sign of a hidden module
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]

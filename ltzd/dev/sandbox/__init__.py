"""A local server that stands in for the outside services, for development and tests.

`identity`, `payments`, `oauth`, `site`, `dns` and `webhooks` each play one service, and `explorer`
shows the dev chain. Tests control them through control endpoints below `/doors/`; `faults` makes a
service fail on request. `server` puts all of it together; begin there.
"""

from ltzd.dev.sandbox.server import Sandbox

__all__ = ["Sandbox"]

"""A local server in place of the outside services, for development and tests."""

from ltzd.dev.sandbox.server import Sandbox

__all__ = ["Sandbox"]

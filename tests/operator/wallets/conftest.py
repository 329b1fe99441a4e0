"""A chain with relay lanes, in place of one with mint lanes."""

from tests.support.relays.lanes import relay_world

__all__ = ["relay_world"]

"""Fixtures of the core, and the world in which mint lanes work."""

from tests.support.core import pool
from tests.support.mint_world import eyes, short_pauses, world

__all__ = ["eyes", "pool", "short_pauses", "world"]

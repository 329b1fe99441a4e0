"""Fixtures of the core, and the world in which mint lanes work."""

from tests.support.chain.mint_world import observer, world
from tests.support.rows.core import pool

__all__ = ["observer", "pool", "world"]

"""Fixtures: a pool on a fresh database, and a chain with mint lanes."""

from tests.support.chain.mint_world import observer, world
from tests.support.rows.core import pool

__all__ = ["observer", "pool", "world"]

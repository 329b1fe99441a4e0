"""A pool on a fresh database for each test that asks."""

from tests.support.rows.core import pool

__all__ = ["pool"]

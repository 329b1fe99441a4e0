"""Fixtures: a pool on a fresh database."""

from tests.support.rows.core import pool

__all__ = ["pool"]

"""Fixtures: brands and their webhook receivers on a fresh database."""

from tests.support.rows.core import pool
from tests.support.services.webhooks import receiver, world

__all__ = ["pool", "receiver", "world"]

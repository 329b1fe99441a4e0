"""Brands and their receivers on a fresh database for each test that asks."""

from tests.support.rows.core import pool
from tests.support.services.webhooks import receiver, world

__all__ = ["pool", "receiver", "world"]

"""Brands and their receivers on a fresh database for each test that asks."""

from tests.support.core import pool
from tests.support.webhooks import receiver, world

__all__ = ["pool", "receiver", "world"]

"""A pool on a fresh database for each test that asks; nobody waits for hashes of nobody's lane."""

from tests.support.core import pool
from tests.support.event_action import nobody_waits_for_hashes, sandbox

__all__ = ["nobody_waits_for_hashes", "pool", "sandbox"]

"""Writers of events wait for a moment while addresses are hidden, however many types there are."""

from typing import Any

import pytest

from ltzd.store.database import Pool, session
from ltzd.store.retention import erasure
from ltzd.store.users.erased_addresses import ErasedAddresses
from tests.support.surfaces.event_action import SEALER

_ADDRESSES = [f"user{number}@shop.example" for number in range(1, 6)]


class _Counting:
    """Stands in for a connection, and counts its database transactions."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.transactions = 0

    def transaction(self) -> Any:
        self.transactions += 1
        return self._connection.transaction()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


async def test_a_lock_is_held_for_few_look_ups(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five addresses with two types of events, of which four look-ups are made under a lock."""
    monkeypatch.setattr(erasure, "_LOCKED_LOOKUPS", 4)
    async with session(pool) as connection:
        await connection.execute(
            """
            INSERT INTO event_claims (brand_id, event_type, email_key, claims)
            SELECT 'brand', type, email, 1
              FROM unnest($1::text[]) AS email, unnest(ARRAY['first', 'second']) AS type
            """,
            _ADDRESSES,
        )
        counting: Any = _Counting(connection)
        hidden = await erasure.hide_addresses(counting, ErasedAddresses(SEALER), _ADDRESSES)
        assert (hidden.claims, counting.transactions) == (10, 3)

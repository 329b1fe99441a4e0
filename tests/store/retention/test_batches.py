"""Rows that a statement may have to change by millions are changed in batches."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from ltzd.store.constraints import results
from ltzd.store.database import Pool, session
from ltzd.store.event_handler import events
from ltzd.store.relayer import gas_budgets, relays
from ltzd.store.retention import batches
from ltzd.store.webhooks import records

_EXPIRED = {
    "nonces": (
        events.delete_expired,
        """
        INSERT INTO request_nonces
        SELECT sha256('b'), n::text, gen_random_uuid(), now() - interval '1 day'
          FROM generate_series(1, 5) AS n
        """,
    ),
    "constraint results": (
        results.delete_expired,
        """
        INSERT INTO constraint_results (user_address, collection_id, position, brand_id, kind,
                                        ticket, expires_at)
        SELECT 'user', n, 0, 'brand', 'chat_role', gen_random_uuid(), now()
          FROM generate_series(1, 5) AS n
        """,
    ),
    "days of gas": (
        gas_budgets.delete_expired,
        """
        INSERT INTO gas_spent
        SELECT now() - interval '9 days', n::text, 0, 1 FROM generate_series(1, 5) AS n
        """,
    ),
    "idempotency keys": (
        relays.delete_expired,
        """
        INSERT INTO relays (user_address, to_address, data, function, serialized_per_user,
                            fingerprint, gas_limit, max_cost_wei, state, failure, idempotency_key,
                            created_at)
        SELECT decode(repeat('1a', 20), 'hex'), '', '', 'f', false, '', 1, 1, 'failed', 'failed',
               n::text, now() - interval '2 days'
          FROM generate_series(1, 5) AS n
        """,
    ),
}


class _Recording:
    """Stands in for a connection, and counts the rows that each statement changes or names."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.changed: list[int] = []

    async def execute(self, sql: str, *arguments: object) -> str:
        status: str = await self._connection.execute(sql, *arguments)
        self.changed.append(int(status.rpartition(" ")[2]))
        return status

    async def fetch(self, sql: str, *arguments: Any) -> Any:
        self.changed += [len(each) for each in arguments if isinstance(each, list)]
        return await self._connection.fetch(sql, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize(("delete_expired", "fill"), _EXPIRED.values(), ids=_EXPIRED)
async def test_expired_rows_are_deleted_in_batches(
    delete_expired: Callable[[Any], Awaitable[None]],
    fill: str,
    pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backlog that one statement cannot delete in its time would stay, and grow, for ever."""
    monkeypatch.setattr(batches, "ROWS", 2)
    async with session(pool) as connection:
        await connection.execute(fill)
        recording = _Recording(connection)
        await delete_expired(recording)
        assert list(filter(None, recording.changed)) == [2, 2, 1]


async def test_webhooks_are_replayed_in_batches(pool: Pool) -> None:
    async with session(pool) as connection:
        recording: Any = _Recording(connection)
        await records.replay(recording, [uuid4() for _ in range(batches.ROWS + 1)])
        assert recording.changed == [batches.ROWS, 1]

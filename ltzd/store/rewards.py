"""Rewards: what is owed to a wallet in LTZ, and how far each one has come."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from ltzd.store.database import Connection
from ltzd.values import Address, Hash32


@dataclass(frozen=True, slots=True)
class QueuedReward:
    """`seq` is None until the reward's first batch gives it one; then it never changes."""

    id: UUID
    kind: int
    wallet: Address
    ltz: int
    seq: int | None


async def queued(
    connection: Connection, limit: int, without: Collection[UUID] = ()
) -> list[QueuedReward]:
    """The oldest rewards that wait for a transaction; who takes them checks that they still do."""
    rows = await connection.fetch(
        """
        SELECT id, kind, wallet, ltz, seq
          FROM rewards
         WHERE transaction_id IS NULL AND mint_block_hash IS NULL AND id <> ALL($2::uuid[])
         ORDER BY position
         LIMIT $1
        """,
        limit,
        list(without),
    )
    return [QueuedReward(*row) for row in rows]


async def published_hashes(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Hash32]:
    """Hashes that may be shown for these rewards; one without is missing from the answer."""
    rows = await connection.fetch(
        """
        SELECT DISTINCT ON (r.id) r.id, coalesce(r.mint_transaction_hash, a.hash) AS hash
          FROM rewards r
          LEFT JOIN attempts a ON a.transaction_id = r.transaction_id AND a.published_at IS NOT NULL
         WHERE r.id = ANY($1::uuid[])
           AND (a.hash IS NOT NULL OR r.mint_transaction_hash IS NOT NULL)
         ORDER BY r.id, a.published_at DESC
        """,
        ids,
    )
    return {row["id"]: Hash32(row["hash"]) for row in rows}


async def requeue(connection: Connection, transaction_id: int) -> int:
    """Give a settled transaction's unminted rewards back to the queue; answers how many."""
    rows = await connection.fetch(
        """
        UPDATE rewards
           SET transaction_id = NULL
         WHERE transaction_id = $1 AND mint_block_hash IS NULL
     RETURNING id
        """,
        transaction_id,
    )
    return len(rows)

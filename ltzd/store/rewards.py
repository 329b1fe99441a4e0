"""Rewards: what is owed to a wallet in LTZ, and how far each one has come."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ltzd.store import webhooks
from ltzd.store.database import Connection
from ltzd.store.lanes import Lane
from ltzd.store.signals import REWARDS, notify
from ltzd.values import Address, Hash32


@dataclass(frozen=True, slots=True)
class QueuedReward:
    """`seq` is None until the reward's first batch gives it one; then it never changes.

    `has_failed` says that LTZ has refused it before, and that a person put it back.
    """

    id: UUID
    kind: int
    wallet: Address
    ltz: int
    seq: int | None
    has_failed: bool = False


async def queued(
    connection: Connection, limit: int, without: Collection[UUID] = ()
) -> list[QueuedReward]:
    """The oldest rewards that wait for a transaction; who takes them checks that they still do.

    Those of paused brands are passed over.
    """
    rows = await connection.fetch(QUEUED, limit, list(without))
    return [QueuedReward(*row) for row in rows]


# While a brand is paused the queue is read brand by brand, from one to the next by key: a million
# rewards of a paused brand at the queue's head then cost nothing. (BETWEEN, not "=", which would
# make the order redundant and let the planner walk the whole queue by position.)
QUEUED = """
WITH RECURSIVE paused AS MATERIALIZED (
  SELECT id FROM brands WHERE paused_at IS NOT NULL
), waiting (brand_id) AS (
  (SELECT brand_id
     FROM rewards
    WHERE transaction_id IS NULL AND failed_at IS NULL
      AND EXISTS (SELECT FROM paused)
    ORDER BY brand_id
    LIMIT 1)
   UNION ALL
  SELECT (SELECT r.brand_id
            FROM rewards r
           WHERE r.transaction_id IS NULL AND r.failed_at IS NULL
             AND r.brand_id > waiting.brand_id
           ORDER BY r.brand_id
           LIMIT 1)
    FROM waiting
   WHERE waiting.brand_id IS NOT NULL
)
SELECT id, kind, wallet, ltz, seq, has_failed
  FROM ((SELECT id, kind, wallet, ltz, seq, failure IS NOT NULL AS has_failed, position
           FROM rewards
          WHERE transaction_id IS NULL AND failed_at IS NULL AND mint_block_hash IS NULL
            AND id <> ALL($2::uuid[])
            AND NOT EXISTS (SELECT FROM paused)
          ORDER BY position
          LIMIT $1)
         UNION ALL
        (SELECT one.*
           FROM waiting
          CROSS JOIN LATERAL (
                SELECT id, kind, wallet, ltz, seq, failure IS NOT NULL AS has_failed, position
                  FROM rewards r
                 WHERE r.brand_id BETWEEN waiting.brand_id AND waiting.brand_id
                   AND transaction_id IS NULL AND failed_at IS NULL AND mint_block_hash IS NULL
                   AND id <> ALL($2::uuid[])
                 ORDER BY r.brand_id, position
                 LIMIT $1) AS one
          WHERE waiting.brand_id NOT IN (SELECT id FROM paused)
          ORDER BY one.position
          LIMIT $1)) AS due
 ORDER BY position
"""


async def fail(connection: Connection, lane: Lane, failures: Mapping[UUID, str]) -> list[UUID]:
    """Take rewards out of the queue that LTZ refuses, for these reasons; answers which it was.

    One that has a transaction by now stays as it is, and so do all when the lane's term is over.
    A brand that may have heard of such a reward's mint is told, in the same commit.
    """
    async with connection.transaction():
        rows = await connection.fetch(
            """
            UPDATE rewards
               SET failed_at = now(), failure = refused.reason
              FROM unnest($1::uuid[], $2::text[]) AS refused (id, reason)
             WHERE rewards.id = refused.id
               AND transaction_id IS NULL AND mint_block_hash IS NULL AND failed_at IS NULL
               AND EXISTS (SELECT FROM lanes
                            WHERE chain_id = $3 AND wallet = $4 AND epoch = $5
                              FOR SHARE)
         RETURNING rewards.id
            """,
            list(failures),
            list(failures.values()),
            lane.chain_id,
            lane.wallet,
            lane.epoch,
        )
        failed = [row[0] for row in rows]
        await webhooks.take_back(connection, failed)
    return failed


async def retry(connection: Connection, reward: UUID) -> bool:
    """Put a failed reward back into the queue, and wake the lane; False when it is not failed.

    Why it failed stays with it: the lane simulates its next mint before it signs.
    """
    put_back: bool | None = await connection.fetchval(
        """
        UPDATE rewards
           SET failed_at = NULL
         WHERE id = $1 AND failed_at IS NOT NULL
     RETURNING true
        """,
        reward,
    )
    if put_back:
        await notify(connection, REWARDS)
    return bool(put_back)


async def published_hashes(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Hash32]:
    """Hashes that may be shown for these rewards; one without is missing from the answer."""
    rows = await connection.fetch(
        """
        SELECT DISTINCT ON (r.id) r.id, coalesce(r.mint_transaction_hash, a.hash) AS hash
          FROM rewards r
          LEFT JOIN attempts a
            ON a.transaction_id = r.transaction_id AND a.published_at IS NOT NULL
           AND NOT a.is_cancellation
         WHERE r.id = ANY($1::uuid[])
           AND (a.hash IS NOT NULL OR r.mint_transaction_hash IS NOT NULL)
         ORDER BY r.id, a.max_fee_per_gas DESC
        """,
        ids,
    )
    return {row["id"]: Hash32(row["hash"]) for row in rows}


async def requeue(
    connection: Connection, transaction_id: int, *, is_cancelled: bool = False
) -> int:
    """Give a settled transaction's unminted rewards back to the queue; answers how many.

    Each keeps its seq: whatever becomes of the old bytes, LTZ mints a reference once.
    """
    rows = await connection.fetch(
        """
        UPDATE rewards
           SET transaction_id = NULL,
               cancelled_mints = least(cancelled_mints + $2::int, 1000)::smallint
         WHERE transaction_id = $1 AND mint_block_hash IS NULL
     RETURNING id
        """,
        transaction_id,
        int(is_cancelled),
    )
    return len(rows)


async def cancelled_mints(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, int]:
    """How often a mint with these rewards was cancelled; a reward with none is missing."""
    rows = await connection.fetch(
        """
        SELECT id, cancelled_mints FROM rewards
         WHERE id = ANY($1::uuid[]) AND cancelled_mints > 0
        """,
        ids,
    )
    return {row["id"]: row["cancelled_mints"] for row in rows}

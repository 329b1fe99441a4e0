"""Brings rewards and redemptions in line with the facts of a rebuilt index, batch by batch.

Run it after the swap. Each function handles one batch in the caller's transaction and may be
repeated. The row of `chains` is locked first, so that the indexer does not mark rewards meanwhile.
"""

from uuid import UUID

from ltzd.store import mint_references
from ltzd.store.database import Connection
from ltzd.store.indexer import mint_facts
from ltzd.store.site_plugin import leaderboard_totals
from ltzd.store.site_plugin.redemption_payments import OF_INDEXED_CONTRACT

BATCH = 1_000
"""The rows of one batch."""


async def record_mints(connection: Connection, rebuild_id: int) -> bool:
    """Record the mints of the next blocks on their rewards; returns whether more blocks follow."""
    await _lock(connection)
    done, last = await connection.fetchrow(
        """
        SELECT coalesce(recorded_number, -1),
               (SELECT max(block_number)
                  FROM (SELECT block_number
                          FROM mints
                         WHERE block_number > coalesce(recorded_number, -1)
                         ORDER BY block_number
                         LIMIT $2) AS batch)
          FROM rebuilds
         WHERE id = $1
        """,
        rebuild_id,
        BATCH,
    )
    if last is None:
        return False
    rows = await connection.fetch(
        f"""
        SELECT m.*
          FROM mints m
          JOIN rewards r ON r.id = {mint_references.REWARD_ID}
         WHERE m.block_number > $1 AND m.block_number <= $2
           AND (r.mint_block_hash IS DISTINCT FROM m.block_hash
                OR r.mint_transaction_hash IS DISTINCT FROM m.transaction_hash)
         ORDER BY m.block_number, m.log_index
        """,  # noqa: S608
        done,
        last,
    )
    await mint_facts.record_on_rewards(connection, [mint_facts.of_row(row) for row in rows])
    await connection.execute(
        "UPDATE rebuilds SET recorded_number = $2 WHERE id = $1", rebuild_id, last
    )
    return True


async def clear_lost_mints(connection: Connection, rebuild_id: int) -> bool:
    """Clear the next rewards' mints that are not in the index; returns whether more follow."""
    await _lock(connection)
    last: UUID | None = await connection.fetchval(
        """
        SELECT id
          FROM (SELECT id
                  FROM rewards
                 WHERE id > coalesce((SELECT checked_reward FROM rebuilds WHERE id = $1),
                                     '00000000-0000-0000-0000-000000000000')
                 ORDER BY id
                 LIMIT $2) AS batch
         ORDER BY id DESC
         LIMIT 1
        """,
        rebuild_id,
        BATCH,
    )
    if last is None:
        return False
    cleared = await connection.fetch(
        """
        UPDATE rewards r
           SET mint_block_number = NULL, mint_block_hash = NULL, mint_transaction_hash = NULL
         WHERE r.id > coalesce((SELECT checked_reward FROM rebuilds WHERE id = $1),
                               '00000000-0000-0000-0000-000000000000')
           AND r.id <= $2 AND r.mint_block_hash IS NOT NULL
           AND NOT EXISTS (
               SELECT FROM mints m
                WHERE m.block_number = r.mint_block_number AND m.block_hash = r.mint_block_hash
                  AND m.transaction_hash = r.mint_transaction_hash
                  AND substring(m.reference FOR 16) = uuid_send(r.id))
     RETURNING r.id
        """,
        rebuild_id,
        last,
    )
    await leaderboard_totals.subtract(connection, [row["id"] for row in cleared])
    await connection.execute(
        "UPDATE rebuilds SET checked_reward = $2 WHERE id = $1", rebuild_id, last
    )
    return True


async def mark_lost_payments(connection: Connection, above: int) -> int | None:
    """Mark redemptions whose paying fact is not in the index, for the next blocks above `above`.

    A rebuild for another contract leaves out the facts of the earlier one: what was paid there
    stays paid.
    Returns the last of those blocks, or None if no redemption was paid above `above`.
    """
    await _lock(connection)
    last: int | None = await connection.fetchval(
        """
        SELECT max(paid_block_number)
          FROM (SELECT paid_block_number
                  FROM site_redemptions
                 WHERE state = 'done' AND paid_block_number > $1
                 ORDER BY paid_block_number
                 LIMIT $2) AS batch
        """,
        above,
        BATCH,
    )
    if last is None:
        return None
    await connection.execute(
        f"""
        UPDATE site_redemptions s
           SET payment_lost_at = now()
         WHERE state = 'done' AND paid_block_number > $1 AND paid_block_number <= $2
           AND payment_lost_at IS NULL
           AND {OF_INDEXED_CONTRACT}
           AND NOT EXISTS (SELECT FROM perk_claims c
                            WHERE c.block_number = s.paid_block_number
                              AND c.block_hash = s.paid_block_hash
                              AND c.log_index = s.paid_log_index)
           AND NOT EXISTS (SELECT FROM purchases p
                            WHERE p.block_number = s.paid_block_number
                              AND p.block_hash = s.paid_block_hash
                              AND p.log_index = s.paid_log_index)
        """,  # noqa: S608
        above,
        last,
    )
    return last


async def _lock(connection: Connection) -> None:
    await connection.execute("SELECT FROM chains FOR UPDATE")

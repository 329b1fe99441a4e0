"""Facts on chain that pay site redemptions, and what happens when a reorganisation takes one back.

The view `site_redemption_payments` says which facts pay. A redemption that is done names the fact
that paid it. `mark_lost_above` marks it when that fact's block goes; `restore` names another fact
that pays, and `reverse` ends a redemption whose payment can no longer come.

The index has no facts of a contract that the settings no longer name, and a missing fact says
nothing about a payment there (`OF_INDEXED_CONTRACT`): the transaction of the redemption's relay
decides then (`restore_by_receipt`).
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg

from ltzd.store import wakeups
from ltzd.store.database import Connection
from ltzd.values import Hash32

RELAY_OF_REDEMPTION: Final = (
    "r.user_address = s.wallet AND r.window_start IS NOT NULL "
    "AND r.fingerprint = sha256(uuid_send(s.id))"
)
"""Whether the relay `r` was sent for the redemption `s`."""

OF_INDEXED_CONTRACT: Final = f"""
NOT EXISTS (SELECT
              FROM relays r
             CROSS JOIN chains
             WHERE {RELAY_OF_REDEMPTION}
               AND r.to_address <> ALL (chains.contracts))
"""  # noqa: S608
"""Whether the redemption `s` was sent to a contract whose facts are indexed, or to none."""


async def finish(connection: Connection, redemption: UUID) -> bool:
    """Write that the redemption is paid, and by which fact, in the caller's transaction.

    Returns False, and writes nothing, if no fact pays it or if the redemption is no longer open.
    """
    payment = await _locked_payment(connection, redemption)
    if payment is None:
        return False
    done = await connection.fetchval(
        """
        UPDATE site_redemptions
           SET state = 'done', completed_at = clock_timestamp(), paid_block_hash = $2,
               paid_log_index = $3, paid_block_number = $4, paid_transaction_hash = $5
         WHERE id = $1 AND state = 'open'
     RETURNING true
        """,
        redemption,
        *payment,
    )
    return bool(done)


async def mark_lost_above(connection: Connection, block_number: int) -> None:
    """Mark redemptions that were paid above this block, in the transaction that deletes the facts
    above it, after they are deleted."""
    await connection.execute(
        """
        UPDATE site_redemptions
           SET payment_lost_at = now()
         WHERE state = 'done' AND paid_block_number > $1 AND payment_lost_at IS NULL
        """,
        block_number,
    )


async def mark_lost_of(connection: Connection, facts: Sequence[tuple[Hash32, int]]) -> None:
    """Mark redemptions whose paying fact is among these (block hash, log index) and is gone, in
    the transaction that has deleted it."""
    await connection.execute(
        """
        UPDATE site_redemptions s
           SET payment_lost_at = now()
          FROM unnest($1::bytea[], $2::int[]) AS fact (block_hash, log_index)
         WHERE s.state = 'done' AND s.payment_lost_at IS NULL
           AND s.paid_block_hash = fact.block_hash AND s.paid_log_index = fact.log_index
           AND NOT EXISTS (SELECT FROM site_redemption_payments p
                            WHERE p.redemption_id = s.id
                              AND p.block_hash = fact.block_hash AND p.log_index = fact.log_index)
        """,
        [block_hash for block_hash, _ in facts],
        [log_index for _, log_index in facts],
    )


async def list_lost(connection: Connection) -> Sequence[UUID]:
    """All redemptions whose payment is lost, the longest lost first."""
    rows = await connection.fetch(
        """
        SELECT id
          FROM site_redemptions
         WHERE state = 'done' AND payment_lost_at IS NOT NULL
         ORDER BY payment_lost_at
        """
    )
    return [row["id"] for row in rows]


async def restore(connection: Connection, redemption: UUID) -> bool:
    """Name the fact that pays a redemption whose payment was lost, in the caller's transaction.

    Returns False if no fact pays it.
    """
    payment = await _locked_payment(connection, redemption)
    if payment is None:
        return False
    restored = await connection.fetchval(
        """
        UPDATE site_redemptions
           SET payment_lost_at = NULL, paid_block_hash = $2, paid_log_index = $3,
               paid_block_number = $4, paid_transaction_hash = $5
         WHERE id = $1 AND state = 'done' AND payment_lost_at IS NOT NULL
     RETURNING true
        """,
        redemption,
        *payment,
    )
    return bool(restored)


async def restore_by_receipt(connection: Connection, redemption: UUID) -> bool:
    """End the wait for a fact that no index will have, in the caller's transaction.

    Returns False unless the redemption's transaction is final, has succeeded, and went to a
    contract that is no longer indexed.
    """
    restored = await connection.fetchval(
        f"""
        UPDATE site_redemptions s
           SET payment_lost_at = NULL
         WHERE id = $1 AND state = 'done' AND payment_lost_at IS NOT NULL
           AND NOT ({OF_INDEXED_CONTRACT})
           AND EXISTS (SELECT
                         FROM relays r
                         JOIN transactions t ON t.id = r.transaction_id
                        WHERE {RELAY_OF_REDEMPTION}
                          AND t.state = 'confirmed')
     RETURNING true
        """,  # noqa: S608
        redemption,
    )
    return bool(restored)


async def reverse(connection: Connection, redemption: UUID) -> bool:
    """End a redemption whose payment can no longer come, and queue the brand's webhook.

    The payment can come as long as the redemption's relay is not final, and as long as the index
    has not read a final block at the height where the payment was. Returns False until then.
    """
    reversed_ = await connection.fetchval(
        f"""
        WITH reversed AS (
          UPDATE site_redemptions s
             SET state = 'reversed', reversed_at = clock_timestamp()
           WHERE s.id = $1 AND s.state = 'done' AND s.payment_lost_at IS NOT NULL
             AND NOT EXISTS (SELECT FROM site_redemption_payments WHERE redemption_id = $1)
             AND EXISTS (SELECT FROM chains
                          WHERE final_number >= s.paid_block_number
                            AND cursor_number >= head_number)
             AND NOT EXISTS (
                 SELECT FROM relays r
                   LEFT JOIN transactions t ON t.id = r.transaction_id
                  WHERE {RELAY_OF_REDEMPTION}
                    AND (t.id IS NULL
                         OR t.state NOT IN ('reverted', 'displaced', 'cancelled')))
       RETURNING s.id, s.brand_id, s.paid_transaction_hash
        ), news AS (
          INSERT INTO webhooks (brand_id, kind, subject, transaction_hash)
          SELECT reversed.brand_id, 'redemption_reversed', reversed.id,
                 reversed.paid_transaction_hash
            FROM reversed
            JOIN brands ON brands.id = reversed.brand_id
           WHERE brands.configuration ->> 'webhook_url' IS NOT NULL AND brands.disabled_at IS NULL
              ON CONFLICT (subject, kind) WHERE NOT revoked DO NOTHING
       RETURNING 1
        ), notified AS (
          SELECT (SELECT pg_notify($2, '') WHERE EXISTS (SELECT FROM news))
        )
        SELECT true FROM notified CROSS JOIN reversed
        """,  # noqa: S608
        redemption,
        wakeups.WEBHOOKS,
    )
    return bool(reversed_)


async def _locked_payment(connection: Connection, redemption: UUID) -> asyncpg.Record | None:
    """The oldest fact that pays, locked against deletion until the transaction ends.

    Waits for an indexer that is deleting the fact; the fact is gone then.
    """
    for table in ("perk_claims", "purchases"):
        payment = await connection.fetchrow(
            f"""
            SELECT block_hash, log_index, block_number, transaction_hash
              FROM {table}
             WHERE (block_number, log_index) IN (SELECT block_number, log_index
                                                   FROM site_redemption_payments
                                                  WHERE redemption_id = $1)
             ORDER BY block_number, log_index
             LIMIT 1
               FOR SHARE
            """,  # noqa: S608
            redemption,
        )
        if payment is not None:
            return payment
    return None

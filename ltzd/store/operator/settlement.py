"""Mined transactions, from their block to its finality, and a reorg below finality (dev chains)."""

import msgspec

from ltzd.rules.operator.transactions import FinalityLost, State, Transaction, advance
from ltzd.store.database import Connection
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import OpenTransaction, inclusion_of, open_transaction_of


class MinedTransaction(msgspec.Struct, frozen=True):
    """A mined transaction, and the indexer's view of its block.

    `unminted` counts its rewards without an indexed mint although the indexer has passed the block.
    """

    transaction: OpenTransaction
    is_indexed: bool
    is_past_finality: bool
    unminted: int


async def has_mined(connection: Connection, lane: Lane) -> bool:
    """Whether the lane has mined transactions that are not final."""
    answer: bool = await connection.fetchval(
        """
        SELECT EXISTS (SELECT FROM transactions
                        WHERE chain_id = $1 AND wallet = $2 AND state = 'mined')
        """,
        lane.chain_id,
        lane.wallet,
    )
    return answer


async def mined_to_settle(connection: Connection, lane: Lane, limit: int) -> list[MinedTransaction]:
    """Mined transactions that are past finality, or whose block the indexer does not have.

    The latter need a fresh receipt: the block was orphaned, or the indexer is behind.
    """
    # Thousands of transactions may wait for finality: only those of due blocks are read.
    rows = await connection.fetch(
        """
        WITH RECURSIVE chain AS MATERIALIZED (
          SELECT cursor_number, final_number FROM chains WHERE chain_id = $1
        ), mined_blocks AS (
          (SELECT block_number, block_hash
             FROM transactions
            WHERE chain_id = $1 AND wallet = $2 AND state = 'mined'
            ORDER BY block_number, block_hash
            LIMIT 1)
          UNION ALL
          SELECT next.*
            FROM mined_blocks last
           CROSS JOIN LATERAL (
                 SELECT block_number, block_hash
                   FROM transactions
                  WHERE chain_id = $1 AND wallet = $2 AND state = 'mined'
                    AND (block_number, block_hash) > (last.block_number, last.block_hash)
                  ORDER BY block_number, block_hash
                  LIMIT 1) AS next
        ), looked_at AS (
          SELECT block_number, block_hash,
                 EXISTS (SELECT FROM blocks b
                          WHERE b.number = m.block_number AND b.hash = m.block_hash) AS is_indexed,
                 block_number <= (SELECT final_number FROM chain) AS is_past_finality,
                 block_number <= (SELECT cursor_number FROM chain) AS is_passed
            FROM mined_blocks m
        ), due_blocks AS MATERIALIZED (
          SELECT * FROM looked_at WHERE is_past_finality OR NOT is_indexed
        ), due AS MATERIALIZED (
          SELECT t.id, t.succeeded AND b.is_passed AS must_be_minted,
                 b.is_indexed, b.is_past_finality
            FROM due_blocks b
           CROSS JOIN LATERAL (
                 SELECT id, nonce, succeeded
                   FROM transactions
                  WHERE chain_id = $1 AND wallet = $2 AND state = 'mined'
                    AND block_number = b.block_number AND block_hash = b.block_hash
                  ORDER BY nonce
                  LIMIT $3) AS t
           ORDER BY t.nonce
           LIMIT $3
        )
        SELECT t.*, due.is_indexed, due.is_past_finality,
               greatest(extract(epoch FROM now() - t.created_at), 0)::float8 AS age_seconds,
               CASE WHEN due.is_indexed THEN 0 ELSE (
                 SELECT coalesce(sum(r.ltz), 0)::bigint
                   FROM rewards r
                  WHERE r.transaction_id = t.id)
               END AS ltz,
               CASE WHEN due.must_be_minted THEN (
                 SELECT count(*)
                   FROM rewards r
                  WHERE r.transaction_id = t.id AND r.mint_block_hash IS NULL) ELSE 0
               END AS unminted
          FROM due
          JOIN open_transactions t USING (id)
         ORDER BY t.nonce
        """,
        lane.chain_id,
        lane.wallet,
        limit,
    )
    return [
        MinedTransaction(
            open_transaction_of(row), row["is_indexed"], row["is_past_finality"], row["unminted"]
        )
        for row in rows
    ]


async def undo_finality_above(connection: Connection, block_number: int) -> None:
    """Apply a reorg below finality (dev chains) to the transactions that were final above a block.

    Does nothing if every final block stays. Call it in the database transaction that undoes the
    blocks.
    """
    rows = await connection.fetch(
        """
        SELECT *
          FROM transactions
         WHERE state IN ('confirmed', 'reverted', 'cancelled') AND block_number > $1
           AND EXISTS (SELECT FROM chains WHERE final_number > $1)
           FOR UPDATE
        """,
        block_number,
    )
    moves = []
    for row in rows:
        before = Transaction(State(row["state"]), inclusion_of(row))
        after, _ = advance(before, FinalityLost())
        moves.append((row["id"], before.state.value, after.state.value))
    await connection.executemany(
        """
        UPDATE transactions
           SET state = $3, settled_at = NULL
         WHERE id = $1 AND state = $2
        """,
        moves,
    )

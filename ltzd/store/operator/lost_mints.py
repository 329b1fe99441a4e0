"""Mints that a database knows from the chain alone, since it has lost the commits behind them.

All three kinds (`LostMints`) are judged by final blocks, which no reorg undoes (except on dev
chains). `count`, `link` and `release` read the whole index of mints: use a connection of
`database.connect`. `link_rewards` reads the mints since the oldest of the rewards.
"""

from collections.abc import Sequence
from uuid import UUID

import asyncpg
import msgspec

from ltzd.store import mint_references
from ltzd.store.database import Connection
from ltzd.store.indexer import mint_facts
from ltzd.store.wakeups import REWARDS, notify

QUERY_TIMEOUT_SECONDS = 3600.0
_AT_ONCE = 500


class LostMints(msgspec.Struct, frozen=True):
    """`unlinked`: rewards in the queue whose mint the index has, under any reference of their own.

    `taken`: rewards whose reference another mint has used, so that they need a new one.
    `unknown`: mints of rewards that the database does not have, with their sum in whole LTZ.
    """

    unlinked: int
    taken: int
    unknown: int
    unknown_ltz: int


def _unlinked(mints: str) -> str:
    """The mints of a relation that belong to queued rewards, whichever reference they have."""
    return f"""
  FROM {mints} m
  JOIN chains c ON m.block_number <= c.final_number
  JOIN rewards r ON r.id = {mint_references.REWARD_ID}
 WHERE r.transaction_id IS NULL AND r.mint_block_hash IS NULL
   AND {mint_references.HAS_KIND_OF_REWARD}
   AND m.recipient = r.wallet AND m.amount = r.ltz * 1000000000000000000::numeric
"""


_TAKEN = f"""
  FROM mints m
  JOIN chains c ON m.block_number <= c.final_number
  JOIN rewards r ON r.seq = {mint_references.SEQ}
 WHERE r.mint_block_hash IS NULL AND m.reference <> {mint_references.OF_REWARD}
"""


async def count(connection: Connection) -> LostMints:
    row = await connection.fetchrow(
        f"""
        SELECT (SELECT count(DISTINCT r.id) {_unlinked("mints")}) AS unlinked,
               (SELECT count(*) {_TAKEN}) AS taken,
               count(*) AS unknown, coalesce(sum(m.amount), 0) AS units
          FROM mints m
         WHERE NOT EXISTS (SELECT FROM rewards r
                            WHERE r.id = {mint_references.REWARD_ID})
        """,  # noqa: S608 - only constants
        timeout=QUERY_TIMEOUT_SECONDS,
    )
    return LostMints(row["unlinked"], row["taken"], row["unknown"], int(row["units"] // 10**18))


async def link(connection: Connection) -> int:
    """Mark queued rewards whose mint is final as minted, a few hundred in each transaction.

    Returns how many. Safe to repeat; an interruption leaves whole parts done.
    """
    linked = 0
    while True:
        async with connection.transaction():
            rows = await connection.fetch(
                f"""
                SELECT DISTINCT ON (r.id) m.* {_unlinked("mints")}
                 ORDER BY r.id, m.block_number
                 LIMIT $1
                """,
                _AT_ONCE,
                timeout=QUERY_TIMEOUT_SECONDS,
            )
            if not rows:
                return linked
            before = linked
            linked += await _record(connection, rows)
            if linked == before:
                return linked  # The two queries disagree: a later run finds the rows again.


async def link_rewards(connection: Connection, rewards: Sequence[UUID]) -> int:
    """As `link`, for these rewards alone, in the caller's transaction.

    A reward's mint is in a block that was seen after the reward was written. A day is allowed for
    clocks: the two servers of a failover may differ.
    """
    rows = await connection.fetch(
        f"""
        WITH oldest AS MATERIALIZED (
          SELECT min(created_at) - interval '1 day' AS written_at
            FROM rewards
           WHERE id = ANY($1::uuid[])
        ), candidates AS MATERIALIZED (
          SELECT *
            FROM mints m
           WHERE m.block_number > coalesce((SELECT number
                                              FROM blocks
                                             WHERE seen_at < (SELECT written_at FROM oldest)
                                             ORDER BY number DESC
                                             LIMIT 1), -1)
             AND {mint_references.REWARD_ID} = ANY($1::uuid[])
        )
        SELECT DISTINCT ON (r.id) m.* {_unlinked("candidates")}
         ORDER BY r.id, m.block_number
        """,  # noqa: S608 - only constants
        rewards,
        timeout=QUERY_TIMEOUT_SECONDS,
    )
    return await _record(connection, rows)


async def _record(connection: Connection, rows: Sequence[asyncpg.Record]) -> int:
    """Record these mints on their rewards; returns on how many."""
    if not rows:
        return 0
    return await mint_facts.record_on_rewards(connection, [mint_facts.of_row(row) for row in rows])


async def release(connection: Connection) -> list[UUID]:
    """Requeue the rewards whose reference another mint has used, each for a new reference.

    Bytes that were signed with the old reference mint them no more: LTZ skips a used reference. A
    reward that lost commits have minted under yet another reference is marked as minted instead.
    Returns the rewards' ids. Safe to repeat.
    """
    async with connection.transaction():
        rows = await connection.fetch(
            f"""
            UPDATE rewards
               SET seq = NULL, transaction_id = NULL
             WHERE mint_block_hash IS NULL
               AND (id, seq) IN (SELECT r.id, r.seq {_TAKEN})
         RETURNING id
            """,  # noqa: S608
            timeout=QUERY_TIMEOUT_SECONDS,
        )
        released = [row["id"] for row in rows]
        if released:
            await link_rewards(connection, released)
            await notify(connection, REWARDS)
    return released

"""The books' figures by brand: granted, bought, minted, announced, and found on chain.

Read all of them in one `snapshot`, so that a running instance changes nothing between two queries.
The queries read whole tables: use a connection of `database.connect`, which plans for that. Each
query has a long timeout of its own.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec

from ltzd.rules.books import Figures, IndexedLtz
from ltzd.store import mint_references
from ltzd.store.books import closed_events
from ltzd.store.database import Connection
from ltzd.values import Address, Hash32

QUERY_TIMEOUT_SECONDS = 3600.0


class Period(msgspec.Struct, frozen=True):
    """From `since` on and before `until`; an end that is None is open."""

    since: datetime | None = None
    until: datetime | None = None


ALL_TIME = Period()


@asynccontextmanager
async def snapshot(connection: Connection, moment: str | None = None) -> AsyncIterator[None]:
    """A read-only transaction on one moment of the database, however long the reading takes.

    `moment` is the name of a snapshot that another connection has exported and still holds.
    """
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        if moment is not None:
            await connection.execute(f"SET TRANSACTION SNAPSHOT '{moment}'")
        # These override the limits for short statements of the server, the database or the role.
        await connection.execute(
            """
            SELECT set_config(name, CASE name WHEN 'work_mem' THEN '128MB' ELSE '0' END, true)
              FROM pg_settings
             WHERE name IN ('statement_timeout', 'transaction_timeout', 'work_mem',
                            'idle_in_transaction_session_timeout')
            """
        )
        yield


async def read_figures(
    connection: Connection, brand: Address | None = None, period: Period = ALL_TIME
) -> dict[Address, Figures]:
    """The figures of one brand or of all, by brand; a brand without any rows is missing.

    Each row counts in the period in which its event or payment was recorded.
    """
    by_brand: defaultdict[Address, dict[str, int]] = defaultdict(dict)
    for question in _FIGURES:
        rows = await connection.fetch(
            question, brand, period.since, period.until, timeout=QUERY_TIMEOUT_SECONDS
        )
        for row in rows:
            named = dict(row)
            by_brand[Address(named.pop("brand_id"))] |= {key: int(named[key]) for key in named}
    return {brand_id: Figures(**known) for brand_id, known in by_brand.items()}


_FIGURES: Sequence[str] = (
    f"""
    SELECT brand_id, count(*) AS answered, sum(ltz) AS answered_ltz
      FROM (SELECT brand_id, ltz, created_at FROM events WHERE ltz > 0
             UNION ALL
            SELECT brand_id, ltz, created_at FROM {closed_events.REWARDS} AS closed) AS answers
     WHERE ($1::bytea IS NULL OR brand_id = $1)
       AND ($2::timestamptz IS NULL OR created_at >= $2)
       AND ($3::timestamptz IS NULL OR created_at < $3)
     GROUP BY brand_id
    """,  # noqa: S608
    """
    SELECT brand_id, count(*) AS bought, sum(usd_cents) AS bought_cents, sum(ltz) AS bought_ltz
      FROM payments
     WHERE ($1::bytea IS NULL OR brand_id = $1)
       AND ($2::timestamptz IS NULL OR created_at >= $2)
       AND ($3::timestamptz IS NULL OR created_at < $3)
     GROUP BY brand_id
    """,
    """
    SELECT brand_id,
           count(*) FILTER (WHERE kind > 2) AS other,
           coalesce(sum(ltz) FILTER (WHERE kind > 2), 0) AS other_ltz,
           count(*) FILTER (WHERE mint_block_hash IS NOT NULL) AS minted,
           coalesce(sum(ltz) FILTER (WHERE mint_block_hash IS NOT NULL), 0) AS minted_ltz,
           count(*) FILTER (WHERE mint_block_hash IS NULL AND transaction_id IS NULL
                                  AND failed_at IS NULL) AS queued,
           count(*) FILTER (WHERE mint_block_hash IS NULL AND transaction_id IS NOT NULL)
             AS in_flight,
           count(*) FILTER (WHERE mint_block_hash IS NULL AND failed_at IS NOT NULL) AS failed
      FROM rewards
     WHERE ($1::bytea IS NULL OR brand_id = $1)
       AND ($2::timestamptz IS NULL OR created_at >= $2)
       AND ($3::timestamptz IS NULL OR created_at < $3)
     GROUP BY brand_id
    """,
    """
    SELECT w.brand_id,
           count(*) FILTER (WHERE w.state = 'delivered') AS delivered,
           count(*) FILTER (WHERE w.state = 'pending') AS pending,
           count(*) FILTER (WHERE w.state = 'exhausted') AS exhausted
      FROM webhooks w
      LEFT JOIN rewards r ON r.id = w.subject
     WHERE w.kind = 'ltz_distributed' AND NOT w.revoked
       AND ($1::bytea IS NULL OR w.brand_id = $1)
       AND ($2::timestamptz IS NULL OR coalesce(r.created_at, w.created_at) >= $2)
       AND ($3::timestamptz IS NULL OR coalesce(r.created_at, w.created_at) < $3)
     GROUP BY w.brand_id
    """,
    f"""
    SELECT r.brand_id, count(*) AS on_chain, sum(m.amount) AS on_chain_units
      FROM mints m
      JOIN rewards r ON m.reference = {mint_references.OF_REWARD}
     WHERE ($1::bytea IS NULL OR r.brand_id = $1)
       AND ($2::timestamptz IS NULL OR r.created_at >= $2)
       AND ($3::timestamptz IS NULL OR r.created_at < $3)
     GROUP BY r.brand_id
    """,  # noqa: S608
)


async def read_indexed_ltz(connection: Connection) -> IndexedLtz | None:
    """The indexed state of LTZ; returns None while no chain is followed."""
    row = await connection.fetchrow(
        """
        SELECT chain_id, genesis_hash, ltz, first_block, cursor_number, cursor_hash,
               (SELECT coalesce(sum(amount), 0) FROM balances) AS balances,
               coalesce((SELECT next_seq FROM reference_counters k
                          WHERE k.chain_id = c.chain_id AND k.ltz = c.ltz), 0) AS next_seq
          FROM chains c
        """,
        timeout=QUERY_TIMEOUT_SECONDS,
    )
    if row is None:
        return None
    return IndexedLtz(
        chain_id=row["chain_id"],
        genesis=Hash32(row["genesis_hash"]),
        ltz=Address(row["ltz"]),
        first_block=row["first_block"],
        number=row["cursor_number"],
        hash=Hash32(row["cursor_hash"]),
        balances=int(row["balances"]),
        next_seq=row["next_seq"],
        used=await _used(connection),
    )


async def _used(connection: Connection) -> dict[int, int]:
    """A reference's seq is its last 8 bytes; the last byte is the bit's index in the word."""
    rows = await connection.fetch(
        """
        SELECT substring(reference FROM 25 FOR 7) AS word,
               bit_or(1::bit(256) << get_byte(reference, 31)) AS bits
          FROM mints
         GROUP BY 1
        """,
        timeout=QUERY_TIMEOUT_SECONDS,
    )
    return {int.from_bytes(row["word"], "big"): row["bits"].to_int() for row in rows}


async def rewards_by_seq(connection: Connection, seqs: Sequence[int]) -> Mapping[int, str]:
    """Ids of the rewards with these seqs, which never change."""
    rows = await connection.fetch(
        "SELECT seq, id::text FROM rewards WHERE seq = ANY($1::bigint[])",
        [seq for seq in seqs if seq < 2**63],
    )
    return {row["seq"]: row["id"] for row in rows}

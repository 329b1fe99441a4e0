"""A brand's statement: every LTZ that was granted or sold in its name, one line each, oldest first.

A line names the user by ltzd's user id; e-mail addresses never leave the database.
"""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import msgspec

from ltzd.store.books import closed_events
from ltzd.store.books.figures import QUERY_TIMEOUT_SECONDS, Period
from ltzd.store.database import Connection
from ltzd.values import Address, Hash32

_ROWS_A_TIME = 1000


class StatementLine(msgspec.Struct, frozen=True):
    """`id` is the event's or the checkout session's. `state` is `missing` without a reward.

    An event that retention has taken away has no type, and its user is the wallet's.
    """

    at: datetime
    kind: str
    id: str
    event_type: str | None
    user_id: str | None
    wallet: Address | None
    ltz: int
    usd_cents: int | None
    state: str
    transaction_hash: Hash32 | None
    block_number: int | None


async def read_lines(
    connection: Connection, brand: Address, period: Period
) -> AsyncIterator[StatementLine]:
    """Read through a cursor, a thousand rows at a time, in the transaction of a
    `figures.snapshot`.
    """
    cursor: Any = connection.cursor(
        _LINES,
        brand,
        period.since,
        period.until,
        prefetch=_ROWS_A_TIME,
        timeout=QUERY_TIMEOUT_SECONDS,
    )
    async for row in cursor:
        yield StatementLine(*row)


# The user of a wallet is unknown if several users have it.
_LINES = f"""
WITH granted AS (
  SELECT e.created_at, 'event' AS kind, e.id::text AS id, e.event_type, e.user_id::text AS user_id,
         coalesce(r.wallet, u.wallet) AS wallet, e.ltz, NULL::bigint AS usd_cents, r.id AS reward_id
    FROM events e
    LEFT JOIN users u ON u.id = e.user_id
    LEFT JOIN rewards r ON r.id = e.id AND r.kind = 1
   WHERE e.brand_id = $1 AND e.ltz > 0
   UNION ALL
  SELECT created_at, 'event', id::text, NULL, NULL, wallet, ltz, NULL, id
    FROM {closed_events.REWARDS} AS closed
   WHERE brand_id = $1
   UNION ALL
  SELECT p.created_at, 'purchase', p.session_id, NULL, NULL, p.wallet, p.ltz, p.usd_cents, r.id
    FROM payments p
    LEFT JOIN rewards r ON r.id = p.reward_id AND r.kind = 2
   WHERE p.brand_id = $1
   UNION ALL
  SELECT r.created_at, CASE r.kind WHEN 3 THEN 'check_in' ELSE 'milestone' END, r.id::text, NULL,
         NULL, r.wallet, r.ltz, NULL, r.id
    FROM rewards r
   WHERE r.brand_id = $1 AND r.kind > 2
)
SELECT g.created_at, g.kind, g.id, g.event_type,
       coalesce(g.user_id, (SELECT CASE WHEN count(*) = 1 THEN min(u.id::text) END
                              FROM wallet_users u
                             WHERE u.wallet = g.wallet)),
       g.wallet, g.ltz, g.usd_cents,
       CASE WHEN r.id IS NULL THEN 'missing'
            WHEN r.mint_block_number <= (SELECT final_number FROM chains) THEN 'final'
            WHEN r.mint_block_hash IS NOT NULL THEN 'minted'
            WHEN r.failed_at IS NOT NULL THEN 'failed'
            WHEN sent.hash IS NOT NULL THEN 'published'
            ELSE 'queued' END,
       coalesce(r.mint_transaction_hash, sent.hash), r.mint_block_number
  FROM granted g
  LEFT JOIN rewards r ON r.id = g.reward_id
  LEFT JOIN LATERAL (
       SELECT a.hash
         FROM attempts a
        WHERE a.transaction_id = r.transaction_id AND a.published_at IS NOT NULL
          AND r.mint_block_hash IS NULL AND NOT a.is_cancellation
        ORDER BY a.max_fee_per_gas DESC
        LIMIT 1) AS sent ON true
 WHERE ($2::timestamptz IS NULL OR g.created_at >= $2)
   AND ($3::timestamptz IS NULL OR g.created_at < $3)
 ORDER BY g.created_at, g.id COLLATE "C"
"""  # noqa: S608

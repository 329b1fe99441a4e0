"""The newest events of all brands or of one, for `ltzd event list` and `tail`; no e-mail address.

Events are found by the index of each brand, so the cost grows with the brands and hardly with the
table.
"""

from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

import msgspec

from ltzd.store.database import Connection
from ltzd.values import Address

EventStatus = Literal["queued", "published", "minted", "final", "failed"]
STATUSES: tuple[EventStatus, ...] = get_args(EventStatus)
"""All statuses, by the names of `GET /service-api/events/{eventId}`."""


SCANNED = 10_000


class ListedEvent(msgspec.Struct, frozen=True):
    """`ltz` is in whole LTZ. `failure` is the reason of the last failure of its reward."""

    id: UUID
    brand_id: Address
    brand_name: str
    event_type: str
    domain: str
    ltz: int
    created_at: datetime
    status: EventStatus
    failure: str | None


class EventSelection(msgspec.Struct, frozen=True):
    """Times are of the events' acceptance, `since` inclusive and `until` exclusive.

    A status is looked for among the `scanned` newest events that the other fields select.
    """

    brand: Address | None = None
    status: EventStatus | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 50
    scanned: int = SCANNED


async def list_events(connection: Connection, selection: EventSelection) -> list[ListedEvent]:
    """Newest first, without the events of brands that are gone."""
    rows = await connection.fetch(
        _LIST,
        selection.brand,
        selection.since,
        selection.until,
        selection.event_type,
        selection.limit if selection.status is None else selection.scanned,
        selection.status,
        selection.limit,
    )
    return [ListedEvent(row[0], Address(row[1]), *row[2:]) for row in rows]


async def database_time(connection: Connection) -> datetime:
    """The time that the database gives to events, at the start of a statement."""
    now: datetime = await connection.fetchval("SELECT statement_timestamp()")
    return now


# Bounds of the index also in a generic plan, which an OR would not give. Of the newest events of
# each brand most are older than the newest of all: the index alone tells how old these are.
_LIST = """
WITH oldest AS MATERIALIZED (
  SELECT min(created_at) AS created_at
    FROM (SELECT e.created_at
            FROM brands b
           CROSS JOIN LATERAL (
                 SELECT created_at
                   FROM events
                  WHERE brand_id = b.id
                    AND created_at >= coalesce($2::timestamptz, '-infinity')
                    AND created_at < coalesce($3::timestamptz, 'infinity')
                    AND ($4::text IS NULL OR event_type = $4)
                  ORDER BY created_at DESC
                  LIMIT $5
                 ) e
           WHERE $1::bytea IS NULL OR b.id = $1
           ORDER BY e.created_at DESC
           LIMIT $5) AS listed
), newest AS (
  SELECT e.*, b.name AS brand_name
    FROM brands b
   CROSS JOIN LATERAL (
         SELECT id, brand_id, event_type, domain, ltz, created_at
           FROM events
          WHERE brand_id = b.id
            AND created_at >= (SELECT created_at FROM oldest)
            AND created_at < coalesce($3::timestamptz, 'infinity')
            AND ($4::text IS NULL OR event_type = $4)
          ORDER BY created_at DESC
          LIMIT $5
         ) e
   WHERE $1::bytea IS NULL OR b.id = $1
   ORDER BY e.created_at DESC, e.id
   LIMIT $5
), judged AS (
  SELECT n.id, n.brand_id, n.brand_name, n.event_type, n.domain, n.ltz, n.created_at,
         CASE WHEN r.id IS NULL THEN 'final'
              WHEN r.mint_block_number <= (SELECT final_number FROM chains) THEN 'final'
              WHEN r.mint_block_hash IS NOT NULL THEN 'minted'
              WHEN r.failed_at IS NOT NULL THEN 'failed'
              WHEN EXISTS (SELECT FROM attempts a
                            WHERE a.transaction_id = r.transaction_id
                              AND a.published_at IS NOT NULL AND NOT a.is_cancellation)
              THEN 'published'
              ELSE 'queued' END AS status,
         r.failure
    FROM newest n
    LEFT JOIN rewards r ON r.id = n.id AND r.brand_id = n.brand_id
)
SELECT *
  FROM judged
 WHERE $6::text IS NULL OR status = $6
 ORDER BY created_at DESC, id
 LIMIT $7
"""

"""Webhooks for the operator's commands: listed, replayed, and their backlog."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ltzd.store.database import Connection
from ltzd.store.retention import batches
from ltzd.store.webhooks.queue import (
    WEBHOOK_STATES,
    WebhookKind,
    WebhookState,
    notify_senders,
)
from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class WebhookRecord:
    """`next_at` is meaningful while the webhook is pending; `revoked` means that an ltz_reverted
    followed.
    """

    id: UUID
    brand_id: Address
    kind: WebhookKind
    subject: UUID
    state: WebhookState
    revoked: bool
    attempts: int
    next_at: datetime
    last_status: int | None
    last_error: str | None
    created_at: datetime
    delivered_at: datetime | None

    @property
    def name(self) -> str:
        """The id that receivers see."""
        return f"msg_{self.id.hex}"

    @property
    def may_be_replayed(self) -> bool:
        """False for a revoked `ltz_distributed`: a later mint of its reward has another webhook."""
        return not (self.revoked and self.kind == "ltz_distributed")


@dataclass(frozen=True, slots=True)
class DisabledEndpoint:
    brand_id: Address
    disabled_at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class WebhookFacts:
    """`pending` webhooks wait for an enabled endpoint, `held` for a disabled or missing one.

    At most MOST_COUNTED are counted of each brand. `oldest_seconds` is the age of the oldest of the
    counted pending webhooks; `overdue_seconds` is the time since a pending webhook became due, 0 if
    none is due.
    """

    pending: int
    oldest_seconds: float | None
    overdue_seconds: float
    held: int
    disabled_endpoints: int


MOST_COUNTED = 10_000


async def backlog(connection: Connection) -> WebhookFacts:
    row = await connection.fetchrow(
        """
        SELECT coalesce(sum(count) FILTER (WHERE is_open), 0)::bigint,
               extract(epoch FROM now() - min(oldest) FILTER (WHERE is_open))::float8,
               greatest(0, extract(epoch FROM now() - min(due) FILTER (WHERE is_open))::float8),
               coalesce(sum(count) FILTER (WHERE NOT is_open), 0)::bigint,
               (SELECT count(*)
                  FROM webhook_endpoints e
                  JOIN brands ON brands.id = e.brand_id
                 WHERE e.disabled_url = brands.configuration ->> 'webhook_url')
          FROM (SELECT waiting.*,
                       brands.disabled_at IS NULL
                       AND brands.configuration ->> 'webhook_url' IS NOT NULL
                       AND e.disabled_url IS DISTINCT FROM brands.configuration ->> 'webhook_url'
                         AS is_open
                  FROM brands
                  LEFT JOIN webhook_endpoints e ON e.brand_id = brands.id
                 CROSS JOIN LATERAL (
                       -- In no order: to sort them, the planner would read all of a brand.
                       SELECT count(*) AS count, min(created_at) AS oldest,
                              (SELECT next_at
                                 FROM webhooks
                                WHERE brand_id BETWEEN brands.id AND brands.id
                                  AND state = 'pending'
                                ORDER BY brand_id, next_at
                                LIMIT 1) AS due
                         FROM (SELECT created_at
                                 FROM webhooks
                                WHERE brand_id BETWEEN brands.id AND brands.id
                                  AND state = 'pending'
                                LIMIT $1) AS counted) AS waiting
                 WHERE waiting.count > 0) AS each_brand
        """,
        MOST_COUNTED,
    )
    assert row is not None
    return WebhookFacts(*row)


async def overdue_seconds(connection: Connection) -> float | None:
    """The time since a pending webhook of an enabled endpoint became due; None if none is due.

    Reads one webhook of each brand.
    """
    seconds: float | None = await connection.fetchval(
        """
        SELECT extract(epoch FROM now() - min(first.next_at))::float8
          FROM brands
          LEFT JOIN webhook_endpoints e ON e.brand_id = brands.id
         CROSS JOIN LATERAL (
               SELECT next_at FROM webhooks
                WHERE brand_id BETWEEN brands.id AND brands.id AND state = 'pending'
                ORDER BY brand_id, next_at
                LIMIT 1) AS first
         WHERE brands.disabled_at IS NULL
           AND brands.configuration ->> 'webhook_url' IS NOT NULL
           AND e.disabled_url IS DISTINCT FROM brands.configuration ->> 'webhook_url'
           AND first.next_at < now()
        """
    )
    return seconds


async def list_webhooks(
    connection: Connection, brand: Address | None, state: WebhookState | None, limit: int
) -> list[WebhookRecord]:
    """The newest first, of one brand or of all."""
    rows = await connection.fetch(
        """
        SELECT w.id, w.brand_id, w.kind, w.subject, w.state, w.revoked, w.attempts, w.next_at,
               w.last_status, w.last_error, w.created_at, w.delivered_at
          FROM brands
         CROSS JOIN unnest($2::text[]) AS listed (state)
         CROSS JOIN LATERAL (
               SELECT *
                 FROM webhooks
                WHERE brand_id = brands.id AND state = listed.state
                ORDER BY created_at DESC
                LIMIT $3) AS w
         WHERE $1::bytea IS NULL OR brands.id = $1
         ORDER BY w.created_at DESC, w.id
         LIMIT $3
        """,
        brand,
        _states(state),
        limit,
    )
    return [WebhookRecord(row[0], Address(row[1]), *row[2:]) for row in rows]


def _states(state: WebhookState | None) -> Sequence[WebhookState]:
    return WEBHOOK_STATES if state is None else (state,)


async def lock_by_id(connection: Connection, ids: Sequence[UUID]) -> list[WebhookRecord]:
    """Read webhooks and lock them until the database transaction ends; leaves out unknown ids."""
    rows = await connection.fetch(
        """
        SELECT id, brand_id, kind, subject, state, revoked, attempts, next_at, last_status,
               last_error, created_at, delivered_at
          FROM webhooks
         WHERE id = ANY($1::uuid[])
         ORDER BY id
           FOR UPDATE
        """,
        ids,
    )
    return [WebhookRecord(row[0], Address(row[1]), *row[2:]) for row in rows]


async def disabled_endpoints(
    connection: Connection, brand: Address | None
) -> list[DisabledEndpoint]:
    """Disabled endpoints whose URL is still in the brand's file."""
    rows = await connection.fetch(
        """
        SELECT e.brand_id, e.disabled_at, e.disabled_reason
          FROM webhook_endpoints e
          JOIN brands ON brands.id = e.brand_id
         WHERE e.disabled_url = brands.configuration ->> 'webhook_url'
           AND ($1::bytea IS NULL OR e.brand_id = $1)
         ORDER BY e.disabled_at, e.brand_id
        """,
        brand,
    )
    return [DisabledEndpoint(Address(row[0]), *row[1:]) for row in rows]


async def replay(connection: Connection, ids: Sequence[UUID]) -> list[UUID]:
    """Make these webhooks due now with no attempts counted; returns the ids. A revoked webhook
    stays as it is. Call it in a database transaction.
    """
    replayed: list[UUID] = []
    # A brand may have millions, which one statement would not finish within its time.
    for start in range(0, len(ids), batches.ROWS):
        rows = await connection.fetch(
            """
            UPDATE webhooks
               SET state = 'pending', attempts = 0, next_at = now(),
                   -- An attempt without an outcome may have arrived (queue.revoke).
                   last_error = CASE WHEN attempts > 0 THEN coalesce(last_error, 'replayed')
                                     ELSE last_error END
             WHERE id = ANY($1::uuid[]) AND NOT (kind = 'ltz_distributed' AND revoked)
         RETURNING id
            """,
            ids[start : start + batches.ROWS],
        )
        replayed += [row["id"] for row in rows]
    if replayed:
        await notify_senders(connection)
    return replayed


async def replay_since(
    connection: Connection, brand: Address, since: datetime, state: WebhookState | None
) -> int:
    """`replay` every webhook that was inserted for a brand since then; returns how many."""
    rows = await connection.fetch(
        """
        SELECT id
          FROM webhooks
         WHERE brand_id = $1 AND created_at >= $2 AND state = ANY($3::text[])
         ORDER BY id
        """,
        brand,
        since,
        _states(state),
    )
    return len(await replay(connection, [row["id"] for row in rows]))


async def enable(connection: Connection, brand: Address) -> int | None:
    """Enable a disabled endpoint; returns how many of the brand's webhooks wait, which start again.

    Returns None, and changes nothing, if the endpoint is not disabled.
    """
    async with connection.transaction():
        enabled = await connection.fetchval(
            """
            UPDATE webhook_endpoints
               SET disabled_url = NULL, disabled_at = NULL, disabled_reason = NULL
             WHERE brand_id = $1 AND disabled_url IS NOT NULL
               AND disabled_url = (SELECT configuration ->> 'webhook_url'
                                     FROM brands
                                    WHERE id = $1)
         RETURNING true
            """,
            brand,
        )
        if not enabled:
            return None
        rows = await connection.fetch(
            "SELECT id FROM webhooks WHERE brand_id = $1 AND state = 'pending' ORDER BY id", brand
        )
        return len(await replay(connection, [row["id"] for row in rows]))

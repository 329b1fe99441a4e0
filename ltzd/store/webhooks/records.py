"""Webhooks for the operator's commands: listed, replayed, and their backlog."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from ltzd.store.database import Connection
from ltzd.store.retention import batches
from ltzd.store.webhooks.queue import (
    WEBHOOK_STATES,
    WebhookKind,
    WebhookState,
    notify_senders,
)
from ltzd.values import Address


class WebhookRecord(msgspec.Struct, frozen=True):
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


class DisabledEndpoint(msgspec.Struct, frozen=True):
    brand_id: Address
    disabled_at: datetime
    reason: str


class WebhookFacts(msgspec.Struct, frozen=True):
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
    for start in range(0, len(ids), batches.ROWS):
        rows = await connection.fetch(
            """
            WITH chosen AS (
              SELECT id
                FROM webhooks
               WHERE id = ANY($1::uuid[]) AND NOT (kind = 'ltz_distributed' AND revoked)
               ORDER BY id -- the order of locks of `queue.settle`
                 FOR UPDATE
            )
            UPDATE webhooks
               SET state = 'pending', attempts = 0, next_at = now(),
                   -- An attempt without an outcome may have arrived (queue.revoke).
                   last_error = CASE WHEN attempts > 0 THEN coalesce(last_error, 'replayed')
                                     ELSE last_error END
              FROM chosen
             WHERE webhooks.id = chosen.id
         RETURNING webhooks.id
            """,
            ids[start : start + batches.ROWS],
        )
        replayed += [row["id"] for row in rows]
    if replayed:
        await notify_senders(connection)
    return replayed


class Position(msgspec.Struct, frozen=True):
    """A place in the order in which a brand's webhooks were written: behind this webhook."""

    written_at: datetime
    id: UUID


class Replayed(msgspec.Struct, frozen=True):
    """How many webhooks are due now; `reached` is None if there are no further ones."""

    count: int
    reached: Position | None


async def present_moment(connection: Connection) -> datetime:
    """The database's time: webhooks written until now have no later one."""
    moment: datetime = await connection.fetchval("SELECT now()")
    return moment


async def position_of(connection: Connection, brand: Address, id_: UUID) -> Position | None:
    """The place of a brand's webhook, or None if the brand has no such webhook."""
    written_at = await connection.fetchval(
        "SELECT created_at FROM webhooks WHERE id = $1 AND brand_id = $2", id_, brand
    )
    return None if written_at is None else Position(written_at, id_)


async def replay_next(
    connection: Connection,
    brand: Address,
    behind: Position,
    until: datetime,
    state: WebhookState | None,
) -> Replayed:
    """`replay` a brand's next webhooks in the order of their writing, in a transaction of its own.

    A brand may have millions: one transaction of all would keep them locked, and time out.
    """
    async with connection.transaction():
        rows = await connection.fetch(
            """
            SELECT w.created_at, w.id
              FROM unnest($5::text[]) AS replayed (state)
             CROSS JOIN LATERAL (
                   SELECT created_at, id
                     FROM webhooks
                    WHERE brand_id = $1 AND state = replayed.state
                      AND (created_at, id) > ($2, $3) AND created_at <= $4
                    ORDER BY created_at, id
                    LIMIT $6) AS w
             ORDER BY w.created_at, w.id
             LIMIT $6
            """,
            brand,
            behind.written_at,
            behind.id,
            until,
            _states(state),
            batches.ROWS,
        )
        count = len(await replay(connection, [row["id"] for row in rows]))
    return Replayed(count, Position(*rows[-1]) if len(rows) == batches.ROWS else None)


async def is_disabled(connection: Connection, brand: Address) -> bool:
    """Whether the endpoint that the brand's file names is disabled."""
    return bool(await disabled_endpoints(connection, brand))


async def enable(connection: Connection, brand: Address) -> None:
    """Enable a disabled endpoint, whose webhooks are then delivered when they are due."""
    await connection.execute(
        """
        UPDATE webhook_endpoints
           SET disabled_url = NULL, disabled_at = NULL, disabled_reason = NULL
         WHERE brand_id = $1
           AND disabled_url = (SELECT configuration ->> 'webhook_url' FROM brands WHERE id = $1)
        """,
        brand,
    )
    await notify_senders(connection)

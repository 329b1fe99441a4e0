"""What brands are to be told: rows that wait, are claimed for one attempt, and settled in groups.

A claim counts the attempt and moves `next_at` on before anything is sent: whoever is killed then
has delayed a webhook, not lost it. `revoke` and whoever writes a reversal put rows in with the
fact that they announce; those of mints are the indexer's (`facts.insert_mints`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from ltzd.store import wakeups
from ltzd.store.database import Connection
from ltzd.values import Address, Hash32

WebhookKind = Literal["ltz_distributed", "ltz_reverted", "payment_reversed", "redemption_reversed"]
WebhookState = Literal["pending", "delivered", "exhausted"]

_ROWS_A_STATEMENT = 5_000


@dataclass(frozen=True, slots=True)
class DueWebhook:
    """Claimed for its attempt with this number, to `url`. `revision` is the brand's."""

    id: UUID
    brand_id: Address
    url: str
    revision: int
    kind: WebhookKind
    subject: UUID
    attempt: int
    created_at: datetime
    transaction_hash: Hash32 | None = None
    """Of the mint that is told, or is told to be gone, or of the payment that is gone."""


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """What an attempt came to. `closes` says why its endpoint is to be disabled, None if not;
    `unless_succeeded_since` then spares one where something arrived since that moment."""

    due: DueWebhook
    at: datetime
    state: WebhookState
    next_at: datetime
    status: int | None
    error: str | None
    closes: str | None = None
    unless_succeeded_since: datetime | None = None


async def notify_senders(connection: Connection) -> None:
    """Wake the senders when this database transaction commits.

    Without an origin (signals.ORIGIN), so that the one in this process hears it, too.
    """
    await connection.execute("SELECT pg_notify($1, '')", wakeups.WEBHOOKS)


async def brands_with_due(connection: Connection, now: datetime) -> set[Address]:
    """Whatever state their endpoints are in. From brand to brand by key, however long the queue."""
    rows = await connection.fetch(
        """
        WITH RECURSIVE waiting (brand_id) AS (
          (SELECT brand_id FROM webhooks WHERE state = 'pending' ORDER BY brand_id LIMIT 1)
           UNION ALL
          SELECT (SELECT w.brand_id
                    FROM webhooks w
                   WHERE w.state = 'pending' AND w.brand_id > waiting.brand_id
                   ORDER BY w.brand_id
                   LIMIT 1)
            FROM waiting
           WHERE waiting.brand_id IS NOT NULL
        )
        SELECT brand_id
          FROM waiting
         WHERE EXISTS (SELECT FROM webhooks w
                        WHERE w.brand_id = waiting.brand_id AND w.state = 'pending'
                          AND w.next_at <= $1)
        """,
        now,
    )
    return {Address(row["brand_id"]) for row in rows}


async def claim(
    connection: Connection, most: Mapping[Address, int], now: datetime, leased_until: datetime
) -> list[DueWebhook]:
    """Up to so many of each brand's due webhooks, those first that are due longest.

    Nobody else gets them until `leased_until`. Those of a disabled brand or endpoint, or without
    one, stay where they are.
    """
    rows = await connection.fetch(
        """
        WITH due AS (
          SELECT one.id, brands.configuration ->> 'webhook_url' AS url, brands.revision
            FROM unnest($1::bytea[], $2::integer[]) AS asked (brand_id, most)
            JOIN brands ON brands.id = asked.brand_id AND brands.disabled_at IS NULL
            LEFT JOIN webhook_endpoints e ON e.brand_id = asked.brand_id
           CROSS JOIN LATERAL (
                 -- BETWEEN, so that the order stays that of the index (rewards.QUEUED).
                 SELECT id
                   FROM webhooks
                  WHERE brand_id BETWEEN asked.brand_id AND asked.brand_id
                    AND state = 'pending' AND next_at <= $3
                  ORDER BY brand_id, next_at
                  LIMIT asked.most
                    FOR UPDATE SKIP LOCKED) AS one
           WHERE brands.configuration ->> 'webhook_url' IS NOT NULL
             AND e.disabled_url IS DISTINCT FROM brands.configuration ->> 'webhook_url'
        )
        UPDATE webhooks
           SET attempts = attempts + 1, next_at = $4,
               -- What a brand has heard of, however far a reorg goes back later.
               transaction_hash = coalesce(
                 (SELECT mint_transaction_hash FROM rewards
                   WHERE rewards.id = webhooks.subject AND webhooks.kind = 'ltz_distributed'),
                 transaction_hash)
          FROM due
         WHERE webhooks.id = due.id
     RETURNING webhooks.id, brand_id, url, revision, kind, subject, attempts, created_at,
               transaction_hash
        """,
        list(most),
        list(most.values()),
        now,
        leased_until,
    )
    return [DueWebhook(row[0], Address(row[1]), *row[2:]) for row in rows]


async def defer(connection: Connection, those: Sequence[UUID], until: datetime) -> None:
    """Give claimed ones back that cannot be sent yet; in the claim's transaction, so that nobody
    sees the attempt that was none."""
    await connection.execute(
        "UPDATE webhooks SET attempts = attempts - 1, next_at = $2 WHERE id = ANY($1::uuid[])",
        those,
        until,
    )


async def settle(
    connection: Connection, outcomes: Sequence[DeliveryOutcome]
) -> list[DeliveryOutcome]:
    """Write what attempts came to, all or nothing; answers those that disabled their endpoint.

    A delivery always counts. A failure counts only while the webhook is as it was claimed: another
    attempt, or a person, may have come in between.
    """
    outcomes = sorted(outcomes, key=lambda one: one.due.id)  # nobody waits for us in a circle
    async with connection.transaction():
        await connection.execute(
            """
            UPDATE webhooks
               SET state = made.state, next_at = made.next_at, last_status = made.status,
                   last_error = made.error,
                   delivered_at = CASE WHEN made.state = 'delivered' THEN made.at
                                       ELSE delivered_at END
              FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::timestamptz[], $5::integer[],
                          $6::text[], $7::timestamptz[])
                   AS made (id, attempt, state, next_at, status, error, at)
             WHERE webhooks.id = made.id
               AND (made.state = 'delivered'
                    OR (webhooks.state = 'pending' AND webhooks.attempts = made.attempt))
            """,
            [one.due.id for one in outcomes],
            [one.due.attempt for one in outcomes],
            [one.state for one in outcomes],
            [one.next_at for one in outcomes],
            [one.status for one in outcomes],
            [one.error for one in outcomes],
            [one.at for one in outcomes],
        )
        await _note_successes(connection, outcomes)
        return [one for one in outcomes if one.closes and await _disable(connection, one)]


async def _note_successes(connection: Connection, outcomes: Sequence[DeliveryOutcome]) -> None:
    latest: dict[Address, datetime] = {}
    for one in outcomes:
        if one.state == "delivered":
            latest[one.due.brand_id] = max(one.at, latest.get(one.due.brand_id, one.at))
    in_order = sorted(latest)
    await connection.execute(
        """
        INSERT INTO webhook_endpoints (brand_id, last_success_at)
        SELECT * FROM unnest($1::bytea[], $2::timestamptz[])
            ON CONFLICT (brand_id) DO UPDATE
           SET last_success_at = greatest(webhook_endpoints.last_success_at,
                                          excluded.last_success_at)
        """,
        in_order,
        [latest[brand] for brand in in_order],
    )


async def _disable(connection: Connection, outcome: DeliveryOutcome) -> bool:
    """False if it is disabled already, or something arrived there meanwhile."""
    disabled = await connection.fetchval(
        """
        INSERT INTO webhook_endpoints AS e (brand_id, disabled_url, disabled_at, disabled_reason)
        VALUES ($1, $2, $3, $4)
            ON CONFLICT (brand_id) DO UPDATE
           SET disabled_url = excluded.disabled_url,
               disabled_at = excluded.disabled_at,
               disabled_reason = excluded.disabled_reason
         WHERE e.disabled_url IS DISTINCT FROM excluded.disabled_url
           AND ($5::timestamptz IS NULL OR e.last_success_at IS NULL OR e.last_success_at < $5)
     RETURNING true
        """,
        outcome.due.brand_id,
        outcome.due.url,
        outcome.at,
        outcome.closes,
        outcome.unless_succeeded_since,
    )
    return bool(disabled)


async def revoke(connection: Connection, rewards: Sequence[UUID]) -> None:
    """Announced rewards failed for good: say so to whoever may have heard of them, nothing to the
    others. If one is minted later after all, that is news again."""
    if not rewards:
        return
    rows = await connection.fetch(
        """
        SELECT id, brand_id, kind, subject, state, transaction_hash,
               attempts > 0 OR delivered_at IS NOT NULL OR last_error IS NOT NULL AS may_be_heard
          FROM webhooks
         WHERE subject = ANY($1::uuid[]) AND kind IN ('ltz_distributed', 'ltz_reverted')
           AND NOT revoked
         ORDER BY id
           FOR UPDATE
        """,
        rewards,
    )
    await connection.execute(
        """
        UPDATE webhooks
           SET revoked = true,
               state = CASE WHEN kind = 'ltz_distributed' AND state = 'pending' THEN 'exhausted'
                            ELSE state END
         WHERE id = ANY($1::uuid[])
        """,
        [row["id"] for row in rows],
    )
    heard = [row for row in rows if row["kind"] == "ltz_distributed" and row["may_be_heard"]]
    if not heard:
        return
    await connection.execute(
        """
        INSERT INTO webhooks (brand_id, kind, subject, transaction_hash)
        SELECT brand_id, 'ltz_reverted', subject, transaction_hash
          FROM unnest($1::bytea[], $2::uuid[], $3::bytea[])
               AS heard (brand_id, subject, transaction_hash)
        """,
        [row["brand_id"] for row in heard],
        [row["subject"] for row in heard],
        [row["transaction_hash"] for row in heard],
    )
    await notify_senders(connection)


async def delete_expired(connection: Connection) -> None:
    """Forget what was delivered 30 days ago, and everything after 90; call it now and then."""
    while True:
        done = await connection.execute(
            """
            DELETE FROM webhooks
             WHERE id IN (
                   SELECT old.id
                     FROM brands
                    CROSS JOIN LATERAL (
                          SELECT id
                            FROM webhooks w
                           WHERE w.brand_id = brands.id
                             AND w.created_at < now() - interval '30 days'
                             AND (w.state = 'delivered'
                                  OR w.created_at < now() - interval '90 days')
                           LIMIT $1) AS old
                    LIMIT $1)
            """,
            _ROWS_A_STATEMENT,
        )
        if int(done.split()[-1]) < _ROWS_A_STATEMENT:
            return

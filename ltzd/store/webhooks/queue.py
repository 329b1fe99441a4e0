"""The queue of webhooks: claimed for one attempt each, and settled in groups.

A claim counts the attempt and moves `next_at` before anything is sent, and the sender moves it on
while it sends, so a process that is killed delays a webhook and loses none. `revoke` and the
writers of reversals insert webhooks with the fact that they announce. The indexer inserts those of
mints (`mint_facts.record_on_rewards`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, get_args
from uuid import UUID

import msgspec

from ltzd.store import wakeups
from ltzd.store.database import Connection
from ltzd.store.retention import batches
from ltzd.values import Address, Hash32

WebhookKind = Literal["ltz_distributed", "ltz_reverted", "payment_reversed", "redemption_reversed"]
WebhookState = Literal["pending", "delivered", "exhausted"]
WEBHOOK_STATES: Final[tuple[WebhookState, ...]] = get_args(WebhookState)


class DueWebhook(msgspec.Struct, frozen=True):
    """A webhook claimed for one attempt, with the number `attempt`. `revision` is the brand's."""

    id: UUID
    brand_id: Address
    url: str
    revision: int
    kind: WebhookKind
    subject: UUID
    attempt: int
    created_at: datetime
    transaction_hash: Hash32 | None = None
    """The transaction of the announced mint, of the reverted mint, or of the lost payment."""


class DeliveryOutcome(msgspec.Struct, frozen=True):
    """The outcome of one attempt.

    `disable_reason` is why the endpoint must be disabled, or None. With `unless_succeeded_since`
    the endpoint stays enabled if a delivery has succeeded since that moment.
    """

    due: DueWebhook
    at: datetime
    state: WebhookState
    next_at: datetime
    status: int | None
    error: str | None
    disable_reason: str | None = None
    unless_succeeded_since: datetime | None = None


async def notify_senders(connection: Connection) -> None:
    """Wake the senders when this database transaction commits.

    Notifies without an origin (`wakeups.origin`), so that the sender in this process wakes too.
    """
    await connection.execute("SELECT pg_notify($1, '')", wakeups.WEBHOOKS)


async def brands_with_due(connection: Connection, now: datetime) -> set[Address]:
    """The brands with due webhooks, whatever the state of their endpoints.

    Reads one index entry of each brand, however many webhooks it has.
    """
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
         WHERE (SELECT true  -- EXISTS might read the whole queue
                  FROM webhooks w
                 WHERE w.brand_id = waiting.brand_id AND w.state = 'pending' AND w.next_at <= $1
                 LIMIT 1)
        """,
        now,
    )
    return {Address(row["brand_id"]) for row in rows}


async def claim(
    connection: Connection, most: Mapping[Address, int], now: datetime, leased_until: datetime
) -> list[DueWebhook]:
    """Claim the longest due webhooks of each brand in `most`, up to the brand's number there.

    Returns them in the order of their creation. No other process claims them until `leased_until`.
    Webhooks of a disabled brand or endpoint, or of a brand without an endpoint, are not claimed.
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
               -- The hash that the brand receives stays, however deep a later reorg is.
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
    due = [DueWebhook(row[0], Address(row[1]), *row[2:]) for row in rows]
    return sorted(due, key=lambda webhook: webhook.created_at)


async def renew(
    connection: Connection, claimed: Sequence[DueWebhook], leased_until: datetime
) -> None:
    """Extend the leases of webhooks that are being sent.

    Does not wait for locked webhooks: a locked webhook keeps its present lease. A webhook that is
    settled, or that a later attempt or a person has changed since its claim, stays as it is; a
    failure's next attempt that is due sooner than `leased_until` moves there.
    """
    await connection.execute(
        """
        WITH sending AS (
          SELECT webhooks.id
            FROM unnest($1::uuid[], $2::integer[]) AS claimed (id, attempt)
            JOIN webhooks ON webhooks.id = claimed.id AND webhooks.attempts = claimed.attempt
           WHERE webhooks.state = 'pending' AND webhooks.next_at < $3
             FOR UPDATE OF webhooks SKIP LOCKED
        )
        UPDATE webhooks
           SET next_at = $3
          FROM sending
         WHERE webhooks.id = sending.id
        """,
        [due.id for due in claimed],
        [due.attempt for due in claimed],
        leased_until,
    )


async def defer(connection: Connection, until: Mapping[UUID, datetime]) -> None:
    """Return claimed webhooks that cannot be sent yet to the queue, each until its time.

    Call it in the claim's transaction, so that the attempt that was not made is never visible.
    """
    await connection.execute(
        """
        UPDATE webhooks
           SET attempts = attempts - 1, next_at = deferred.until
          FROM unnest($1::uuid[], $2::timestamptz[]) AS deferred (id, until)
         WHERE webhooks.id = deferred.id
        """,
        list(until),
        list(until.values()),
    )


async def settle(
    connection: Connection, outcomes: Sequence[DeliveryOutcome]
) -> list[DeliveryOutcome]:
    """Write the outcomes of attempts, all or nothing; returns those that disabled their endpoint.

    A delivery always counts. A failure counts only while the webhook is as it was claimed: another
    attempt, or a person, may have changed it since.
    """
    outcomes = sorted(outcomes, key=lambda outcome: outcome.due.id)  # one order of locks
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
            [outcome.due.id for outcome in outcomes],
            [outcome.due.attempt for outcome in outcomes],
            [outcome.state for outcome in outcomes],
            [outcome.next_at for outcome in outcomes],
            [outcome.status for outcome in outcomes],
            [outcome.error for outcome in outcomes],
            [outcome.at for outcome in outcomes],
        )
        await _note_successes(connection, outcomes)
        return [
            outcome
            for outcome in outcomes
            if outcome.disable_reason and await _disable(connection, outcome)
        ]


async def _note_successes(connection: Connection, outcomes: Sequence[DeliveryOutcome]) -> None:
    latest: dict[Address, datetime] = {}
    for outcome in outcomes:
        if outcome.state == "delivered":
            latest[outcome.due.brand_id] = max(
                outcome.at, latest.get(outcome.due.brand_id, outcome.at)
            )
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
    """Return False if the endpoint is disabled already, or a delivery has succeeded meanwhile."""
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
        outcome.disable_reason,
        outcome.unless_succeeded_since,
    )
    return bool(disabled)


async def revoke(connection: Connection, rewards: Sequence[UUID]) -> None:
    """Announce that announced rewards have failed for good.

    Brands that may have received `ltz_distributed` get `ltz_reverted`. The other brands get
    nothing. A mint of the reward after this is announced again.
    """
    if not rewards:
        return
    rows = await connection.fetch(
        """
        SELECT id, brand_id, kind, subject, state, transaction_hash,
               attempts > 0 OR delivered_at IS NOT NULL OR last_error IS NOT NULL AS may_be_received
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
    received = [row for row in rows if row["kind"] == "ltz_distributed" and row["may_be_received"]]
    if not received:
        return
    await connection.execute(
        """
        INSERT INTO webhooks (brand_id, kind, subject, transaction_hash)
        SELECT brand_id, 'ltz_reverted', subject, transaction_hash
          FROM unnest($1::bytea[], $2::uuid[], $3::bytea[])
               AS received (brand_id, subject, transaction_hash)
        """,
        [row["brand_id"] for row in received],
        [row["subject"] for row in received],
        [row["transaction_hash"] for row in received],
    )
    await notify_senders(connection)


async def delete_expired(connection: Connection) -> None:
    """Delete delivered webhooks after 30 days and all webhooks after 90 days."""
    # An order and an array, because the planner expects a third of all webhooks to be old: it would
    # read the whole table for each brand and state to find some, and once more to delete them.
    await batches.run(
        connection,
        """
        DELETE FROM webhooks
         WHERE id = ANY(ARRAY(
               SELECT old.id
                 FROM brands
                CROSS JOIN (VALUES ('delivered', interval '30 days'),
                                   ('pending', interval '90 days'),
                                   ('exhausted', interval '90 days')) AS kept (state, age)
                CROSS JOIN LATERAL (
                      SELECT id
                        FROM webhooks w
                       WHERE w.brand_id = brands.id AND w.state = kept.state
                         AND w.created_at < now() - kept.age
                       ORDER BY w.created_at
                       LIMIT $1) AS old
                LIMIT $1))
        """,
    )

"""Paid checkout sessions and their reversals.

A payment is inserted with its reward in one statement, so a session is minted once. Payment and
reversal may arrive in either order. Both are written under the lock of their payment intent: the
later one finds the earlier one, joins them, and inserts the brand's webhook.

A payment whose rows a restored database has lost is minted already: its mint is found in the index.
"""

from enum import Enum
from uuid import UUID, uuid5

import asyncpg
import msgspec

from ltzd.rules.payments.reversals import Reversal
from ltzd.rules.payments.sessions import Payment
from ltzd.store.database import Connection
from ltzd.store.indexer import mint_facts, unknown_payments
from ltzd.store.mint_references import PAYMENT_REWARD
from ltzd.store.wakeups import origin

_NAMESPACE = UUID("6b0c5a53-3d0f-4d8b-9d53-4d3f6a0f8f0e")


def reward_id(session_id: str) -> UUID:
    """The id of a session's reward, which depends on the session alone."""
    return uuid5(_NAMESPACE, session_id)


class PaymentOutcome(Enum):
    NEW = "new"
    KNOWN = "known"
    FOUND_MINTED = "found minted"
    """The payment's rows were lost with a server: the new ones take the mint that the index has."""
    REFUNDED = "refunded"
    """The whole payment was refunded before it was minted, so it is not minted."""


class ReversalRow(msgspec.Struct, frozen=True):
    """`session_id` is None while the payment is unknown. `is_announced` says that a webhook was
    inserted.
    """

    id: UUID
    reversal: Reversal
    session_id: str | None
    is_announced: bool


class RecordedPayment(msgspec.Struct, frozen=True):
    """`reversals` arrived before the payment and now belong to it."""

    outcome: PaymentOutcome
    reversals: tuple[ReversalRow, ...] = ()


async def find(connection: Connection, session_id: str) -> Payment | None:
    row = await connection.fetchrow(
        """
        SELECT session_id, brand_id, wallet, usd_cents, payment_intent_id
          FROM payments WHERE session_id = $1
        """,
        session_id,
    )
    return None if row is None else Payment(*row)


async def session_of(connection: Connection, payment_intent_id: str) -> str | None:
    """The minted session that this payment intent has paid, or None."""
    session_id: str | None = await connection.fetchval(
        "SELECT session_id FROM payments WHERE payment_intent_id = $1 LIMIT 1", payment_intent_id
    )
    return session_id


async def lock_intent(connection: Connection, payment_intent_id: str) -> None:
    """Serialise the writers of payments and reversals of this payment intent until the transaction
    ends.
    """
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('payment intent ' || $1::text, 0))",
        payment_intent_id,
    )


async def record(connection: Connection, payment: Payment) -> RecordedPayment:
    """Insert the payment and its reward, once. Call it under `lock_intent`.

    Waits for the indexer's commit, and holds back its next one: of a mint that is being indexed
    one of the two must see the other's row.
    """
    await connection.execute("SELECT FROM chains FOR SHARE")
    rows = await connection.fetch(
        _RECORD,
        payment.session_id,
        reward_id(payment.session_id),
        payment.brand_id,
        payment.wallet,
        payment.usd_cents,
        payment.ltz,
        payment.payment_intent_id,
        PAYMENT_REWARD,
        origin(),
    )
    outcome = PaymentOutcome(rows[0]["outcome"])
    if outcome is PaymentOutcome.NEW:
        mint = await unknown_payments.mint_of(connection, reward_id(payment.session_id))
        if mint is not None:
            is_same = await mint_facts.record_on_rewards(connection, [mint_facts.of_row(mint)])
            outcome = PaymentOutcome.FOUND_MINTED if is_same else outcome
    return RecordedPayment(outcome, tuple(_reversal(row) for row in rows if row["id"] is not None))


# Foreign keys are checked at the end of the statement, so a reversal may name the payment that is
# inserted beside it.
_RECORD = """
WITH paid AS (
  INSERT INTO payments (session_id, reward_id, brand_id, wallet, usd_cents, ltz, payment_intent_id)
  SELECT $1, $2, $3, $4, $5, $6, $7
   WHERE (SELECT coalesce(sum(usd_cents), 0)::bigint
            FROM payment_reversals
           WHERE payment_intent_id = $7 AND kind = 'refund') < $5
      ON CONFLICT DO NOTHING
  RETURNING session_id, brand_id
), owed AS (
  INSERT INTO rewards (id, kind, brand_id, wallet, ltz)
  SELECT $2, $8, $3, $4, $6 FROM paid
), joined AS (
  UPDATE payment_reversals r
     SET session_id = paid.session_id
    FROM paid
   WHERE r.payment_intent_id = $7 AND r.session_id IS NULL
  RETURNING r.*
), news AS (
  INSERT INTO webhooks (brand_id, kind, subject)
  SELECT paid.brand_id, 'payment_reversed', joined.id
    FROM joined
    JOIN paid USING (session_id)
    JOIN brands ON brands.id = paid.brand_id
   WHERE brands.configuration ->> 'webhook_url' IS NOT NULL AND brands.disabled_at IS NULL
      ON CONFLICT (subject, kind) WHERE NOT revoked DO NOTHING
  RETURNING subject
), notified AS (
  SELECT (SELECT pg_notify('ltzd_rewards', $9) WHERE EXISTS (SELECT FROM paid)),
         (SELECT pg_notify('ltzd_webhooks', $9) WHERE EXISTS (SELECT FROM news))
)
SELECT CASE WHEN EXISTS (SELECT FROM paid) THEN 'new'
            WHEN EXISTS (SELECT FROM payments WHERE session_id = $1) THEN 'known'
            ELSE 'refunded'
       END AS outcome,
       joined.*,
       news.subject IS NOT NULL AS is_announced
  FROM notified
  LEFT JOIN joined ON true
  LEFT JOIN news ON news.subject = joined.id
"""


async def refunds_of(connection: Connection, payment_intent_id: str) -> dict[str, int]:
    """The cents of every recorded refund, by the provider's id."""
    rows = await connection.fetch(
        """
        SELECT provider_id, usd_cents FROM payment_reversals
         WHERE payment_intent_id = $1 AND kind = 'refund'
        """,
        payment_intent_id,
    )
    return {row["provider_id"]: row["usd_cents"] for row in rows}


async def record_reversal(connection: Connection, reversal: Reversal) -> ReversalRow | None:
    """Insert a reversal under `lock_intent`. Returns None if it is recorded already."""
    row = await connection.fetchrow(
        _RECORD_REVERSAL,
        reversal.provider_id,
        reversal.kind,
        reversal.payment_intent_id,
        reversal.usd_cents,
        reversal.reason,
        origin(),
    )
    return None if row is None else _reversal(row)


_RECORD_REVERSAL = """
WITH payment AS (
  SELECT session_id, brand_id FROM payments WHERE payment_intent_id = $3 LIMIT 1
), reversed AS (
  INSERT INTO payment_reversals
         (provider_id, kind, payment_intent_id, session_id, usd_cents, reason)
  VALUES ($1, $2, $3, (SELECT session_id FROM payment), $4, $5)
      ON CONFLICT (provider_id) DO NOTHING
  RETURNING *
), news AS (
  INSERT INTO webhooks (brand_id, kind, subject)
  SELECT payment.brand_id, 'payment_reversed', reversed.id
    FROM reversed
    JOIN payment USING (session_id)
    JOIN brands ON brands.id = payment.brand_id
   WHERE brands.configuration ->> 'webhook_url' IS NOT NULL AND brands.disabled_at IS NULL
      ON CONFLICT (subject, kind) WHERE NOT revoked DO NOTHING
  RETURNING subject
), notified AS (
  SELECT (SELECT pg_notify('ltzd_webhooks', $6) WHERE EXISTS (SELECT FROM news))
)
SELECT reversed.*, EXISTS (SELECT FROM news) AS is_announced
  FROM notified
 CROSS JOIN reversed
"""


def _reversal(row: asyncpg.Record) -> ReversalRow:
    return ReversalRow(
        row["id"],
        Reversal(
            row["provider_id"],
            row["kind"],
            row["payment_intent_id"],
            row["usd_cents"],
            row["reason"],
        ),
        row["session_id"],
        row["is_announced"],
    )

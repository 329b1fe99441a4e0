"""Events and their claims: read as a snapshot, decided by rules, inserted if nothing has changed.

A claim's count grows by one with each event, so it is the version that the insert compares. Of two
writers that decided on the same claim, one loses and decides again. A global maximum and a brand's
own limits are CHECKs of the tables that count them, so no race can exceed them. A signed request's
nonce is a unique row.
"""

from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from msgspec import structs

from ltzd.rules.event_handler.brand_limits import Quota, QuotaKind, local_day
from ltzd.rules.event_handler.claims import ClaimRecord
from ltzd.rules.request_signatures import NONCE_SECONDS
from ltzd.store.database import Connection
from ltzd.store.migrations import event_partitions
from ltzd.store.retention import batches
from ltzd.values import Address, Hash32

ClaimKey = tuple[Address, str, str]
"""Brand, event type, e-mail key."""
TotalKey = tuple[Address, str]
"""Brand, event type."""
UsageKey = tuple[Address, QuotaKind, datetime]
"""Brand, what is counted, the window's start."""
NonceKey = tuple[Address, str]
"""Brand, nonce of a signed request."""

EVENT_REWARD = 1
"""The kind of an event's reward, in rows and references (docs/contracts.md)."""


class EventRow(msgspec.Struct, frozen=True):
    """An event to insert; `wallet` receives `ltz` whole LTZ if that is more than 0.

    User and wallet are those at the time of the request. If the user's row has changed by the time
    of the insert, the row decides. `insert` returns the event as it was inserted, and sets
    `is_new_user` if this event inserted the user.
    """

    id: UUID
    brand_id: Address
    event_type: str
    email: str
    user_id: UUID
    domain: str
    source: str | None
    user_identifier: str | None
    metadata: dict[str, Any]
    ltz: int
    wallet: Address
    is_new_user: bool = False


class ClaimSnapshot(msgspec.Struct, frozen=True):
    """The rows that events are decided on, and the database's time; a key without a row is
    missing.
    """

    claims: dict[ClaimKey, ClaimRecord]
    totals: dict[TotalKey, int]
    usage: dict[UsageKey, int]
    nonces: dict[NonceKey, UUID]
    """The request that used each nonce."""
    now: datetime


class ClaimQuery(msgspec.Struct, frozen=True):
    """The keys that one decision reads; most events need only their claim."""

    claim: ClaimKey
    total: TotalKey | None = None
    usage: Address | None = None
    """The brand, if it has limits of its own."""
    nonce: NonceKey | None = None


async def read_snapshot(connection: Connection, queries: Sequence[ClaimQuery]) -> ClaimSnapshot:
    """Read without locks; `insert` refuses events whose rows have changed since."""
    claims, now = await _claims(connection, {query.claim for query in queries})
    return ClaimSnapshot(
        claims=claims,
        totals=await _totals(
            connection, {query.total for query in queries if query.total is not None}
        ),
        usage=await _usage(
            connection, {query.usage for query in queries if query.usage is not None}
        ),
        nonces=await _nonces(
            connection, {query.nonce for query in queries if query.nonce is not None}
        ),
        now=now,
    )


async def _claims(
    connection: Connection, keys: set[ClaimKey]
) -> tuple[dict[ClaimKey, ClaimRecord], datetime]:
    wanted = list(keys)
    rows = await connection.fetch(
        """
        SELECT brand_id, event_type, email_key, c.claims, c.last_event_id, c.last_event_at,
               clock_timestamp() AS now
          FROM unnest($1::bytea[], $2::text[], $3::text[])
               AS wanted (brand_id, event_type, email_key)
          LEFT JOIN event_claims c USING (brand_id, event_type, email_key)
        """,
        [key[0] for key in wanted],
        [key[1] for key in wanted],
        [key[2] for key in wanted],
    )
    claims = {
        (Address(row[0]), row[1], row[2]): ClaimRecord(row[3], row[4], row[5])
        for row in rows
        if row[3] is not None
    }
    return claims, max(row["now"] for row in rows)


async def _totals(connection: Connection, wanted: set[TotalKey]) -> dict[TotalKey, int]:
    """The stored totals; claims without a stored total are counted, and their total is stored."""
    if not wanted:
        return {}
    columns = [key[0] for key in wanted], [key[1] for key in wanted]
    totals = await _stored_totals(connection, *columns)
    if len(totals) < len(wanted):
        await connection.execute(_COUNT_TOTALS, *columns)
        totals = await _stored_totals(connection, *columns)
    return totals


async def _stored_totals(
    connection: Connection, brands: Sequence[Address], types: Sequence[str]
) -> dict[TotalKey, int]:
    rows = await connection.fetch(
        """
        SELECT brand_id, event_type, t.claims
          FROM unnest($1::bytea[], $2::text[]) AS wanted (brand_id, event_type)
          JOIN event_claim_totals t USING (brand_id, event_type)
        """,
        brands,
        types,
    )
    return {(Address(row[0]), row[1]): row[2] for row in rows}


# To count reads all claims of a type. While each event of the type is refused, no insert stores the
# total, so each refusal would count again. The insert of an event sets the maximum.
_COUNT_TOTALS = """
WITH missing AS MATERIALIZED (
  SELECT brand_id, event_type
    FROM unnest($1::bytea[], $2::text[]) AS wanted (brand_id, event_type)
   WHERE NOT EXISTS (SELECT FROM event_claim_totals t
                      WHERE t.brand_id = wanted.brand_id AND t.event_type = wanted.event_type)
)
INSERT INTO event_claim_totals (brand_id, event_type, claims, maximum)
SELECT brand_id, event_type, counted.claims, counted.claims
  FROM missing
 CROSS JOIN LATERAL (
       SELECT coalesce(sum(c.claims), 0)::bigint AS claims
         FROM event_claims c
        WHERE c.brand_id = missing.brand_id AND c.event_type = missing.event_type) AS counted
 ORDER BY brand_id, event_type
    ON CONFLICT (brand_id, event_type) DO NOTHING
"""


async def _usage(connection: Connection, brands: set[Address]) -> dict[UsageKey, int]:
    """The windows that may still be open; a day at a change of the clocks' offset has up to 50
    hours.
    """
    if not brands:
        return {}
    rows = await connection.fetch(
        """
        SELECT brand_id, kind, window_start, used
          FROM unnest($1::bytea[]) AS wanted (brand_id)
          JOIN unnest($2::text[]) AS kinds (kind) ON true
          JOIN brand_usage u USING (brand_id, kind)
         WHERE u.window_start > now() - interval '50 hours'
        """,
        list(brands),
        [kind.value for kind in QuotaKind],
    )
    return {(Address(row[0]), QuotaKind(row[1]), row[2]): row[3] for row in rows}


async def _nonces(connection: Connection, wanted: set[NonceKey]) -> dict[NonceKey, UUID]:
    if not wanted:
        return {}
    rows = await connection.fetch(
        """
        SELECT brand_id, nonce, n.request_id
          FROM unnest($1::bytea[], $2::text[]) AS wanted (brand_id, nonce)
          JOIN request_nonces n USING (brand_id, nonce)
        """,
        [key[0] for key in wanted],
        [key[1] for key in wanted],
    )
    return {(Address(row[0]), row[1]): row[2] for row in rows}


class NewEvent(msgspec.Struct, frozen=True):
    """An event to insert if its claim still counts `claim.claims - 1`.

    `identity_subject` is None for a user who has a row. `maximum` is the global maximum or None.
    `budget` and `wallets` are the brand's own limits; of a group of events of one new user, one
    event has `wallets`. `nonce` and `request_id` belong to a signed request, and `time_zone` to the
    brand. An `insert` takes at most one new event of a claim.
    """

    event: EventRow
    key: ClaimKey
    claim: ClaimRecord
    identity_subject: str | None
    maximum: int | None
    budget: Quota | None = None
    wallets: Quota | None = None
    nonce: str | None = None
    request_id: UUID | None = None
    time_zone: str = "UTC"

    @property
    def earned_on(self) -> date | None:
        """The day of the decision in the brand's time zone; only a reward's row needs it."""
        at = self.claim.last_event_at
        return None if at is None or not self.event.ltz else local_day(at, self.time_zone)


_LIMITS = frozenset(("claims_within_maximum", "usage_within_maximum"))


async def insert(connection: Connection, events: Sequence[NewEvent]) -> dict[ClaimKey, EventRow]:
    """Insert events, with their claims, users, rewards, totals and wake-up, in one statement.

    Returns the claims that were inserted. An event is left out if its claim has changed since it
    was read, if another request has used its nonce, or if its known user's address was erased.
    Nothing is inserted if a concurrent writer has brought a count to its limit, or if the table's
    conversion into partitions has met its bound, which this call then lifts.
    """
    ordered = sorted(events, key=lambda new: new.key)
    try:
        rows = await connection.fetch(_INSERT, *_columns(ordered))
    except asyncpg.CheckViolationError as error:
        if error.constraint_name == event_partitions.BOUND:
            await event_partitions.lift_bound(connection)
        elif error.constraint_name not in _LIMITS:
            raise
        return {}
    users = await _reread_users(connection, [row for row in rows if row["is_unseen"]])
    proposed = {new.key: new.event for new in ordered}
    inserted: dict[ClaimKey, EventRow] = {}
    for row in rows:
        key = (Address(row["brand_id"]), row["event_type"], row["email_key"])
        event, owner = proposed[key], users.get(row["id"], row["owner_id"])
        wallet, is_new = Address(row["goes_to"]), row["is_new"]
        if is_new or owner != event.user_id or wallet != event.wallet:
            event = structs.replace(event, user_id=owner, wallet=wallet, is_new_user=is_new)
        inserted[key] = event
    return inserted


async def _reread_users(
    connection: Connection, unseen: Sequence[asyncpg.Record]
) -> dict[UUID, UUID]:
    """Read the users again that another process inserted while these events were being inserted."""
    if not unseen:
        return {}
    columns = [[row[name] for row in unseen] for name in ("id", "email_key", "goes_to")]
    return {row["id"]: row["user_id"] for row in await connection.fetch(_REREAD_USERS, *columns)}


async def reward_wallets(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Address]:
    """The wallets of these events' rewards; an event without a reward is missing."""
    rows = await connection.fetch("SELECT id, wallet FROM rewards WHERE id = ANY($1::uuid[])", ids)
    return {row["id"]: Address(row["wallet"]) for row in rows}


def _columns(ordered: Sequence[NewEvent]) -> list[object]:
    events = [new.event for new in ordered]
    return [
        [new.key[0] for new in ordered],
        [new.key[1] for new in ordered],
        [new.key[2] for new in ordered],
        [new.claim.claims for new in ordered],
        [event.id for event in events],
        [new.claim.last_event_at for new in ordered],
        [new.maximum for new in ordered],
        [event.user_id for event in events],
        [new.identity_subject for new in ordered],
        [event.wallet for event in events],
        [event.email for event in events],
        [event.domain for event in events],
        [event.source for event in events],
        [event.user_identifier for event in events],
        [msgspec.json.encode(event.metadata).decode() for event in events],
        [event.ltz for event in events],
        [new.budget and new.budget.maximum for new in ordered],
        [new.budget and new.budget.start for new in ordered],
        [new.wallets and new.wallets.maximum for new in ordered],
        [new.wallets and new.wallets.start for new in ordered],
        [new.nonce for new in ordered],
        [new.request_id for new in ordered],
        [new.earned_on for new in ordered],
        EVENT_REWARD,
    ]


# One statement: one round trip, all or nothing. Nonces and claims are written first, in one order,
# and everything else depends on the claims that were counted, so no two writers deadlock.
# PostgreSQL checks a row's CHECK before it finds the row's conflict. So `counted` proposes the
# number that the decision used: the stored total, and only without one the sum of all claims.
# Events that were accepted before their type had a maximum are in no total, here as in the
# decision; otherwise each new decision would accept an event that is refused here, without an end.
# A user's row may have been inserted, or moved to another wallet, since the request. A row that was
# inserted while this statement ran conflicts with `new_users` but is not visible: see
# `_REREAD_USERS`. Users are looked up one by one in both places: a join, or EXISTS, reads all of
# them while PostgreSQL has no statistics of a new or restored table.
_INSERT = """
WITH new AS MATERIALIZED (
  SELECT *
    FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bigint[], $5::uuid[], $6::timestamptz[],
                $7::bigint[], $8::uuid[], $9::text[], $10::bytea[], $11::text[], $12::text[],
                $13::text[], $14::text[], $15::text[], $16::bigint[], $17::bigint[],
                $18::timestamptz[], $19::bigint[], $20::timestamptz[], $21::text[], $22::uuid[],
                $23::date[])
         AS new (brand_id, event_type, email_key, claims, id, at, maximum, user_id, subject, wallet,
                 email, domain, source, user_identifier, metadata, ltz, budget, day, most_wallets,
                 hour, nonce, request_id, earned_on)
), signed AS (
  INSERT INTO request_nonces (brand_id, nonce, request_id)
  SELECT DISTINCT brand_id, nonce, request_id
    FROM new
   WHERE nonce IS NOT NULL
   ORDER BY brand_id, nonce
      ON CONFLICT (brand_id, nonce) DO UPDATE
     SET request_id = excluded.request_id
   WHERE request_nonces.request_id = excluded.request_id
  RETURNING brand_id, nonce
), claimed AS (
  INSERT INTO event_claims (brand_id, event_type, email_key, claims, last_event_id, last_event_at)
  SELECT brand_id, event_type, email_key, claims, id, at
    FROM new
   WHERE (nonce IS NULL
          OR EXISTS (SELECT FROM signed s WHERE s.brand_id = new.brand_id AND s.nonce = new.nonce))
     AND (subject IS NOT NULL OR (SELECT true FROM users u WHERE u.email_key = new.email_key))
   ORDER BY brand_id, event_type, email_key
      ON CONFLICT (brand_id, event_type, email_key) DO UPDATE
     SET claims = excluded.claims, last_event_id = excluded.last_event_id,
         last_event_at = excluded.last_event_at
   WHERE event_claims.claims = excluded.claims - 1
  RETURNING brand_id, event_type, email_key, last_event_id
), accepted AS MATERIALIZED (
  SELECT new.* FROM new JOIN claimed ON claimed.last_event_id = new.id
), new_users AS (
  INSERT INTO users (id, email_key, identity_subject, wallet)
  SELECT DISTINCT ON (email_key) user_id, email_key, subject, wallet
    FROM accepted
   WHERE subject IS NOT NULL
   ORDER BY email_key
      ON CONFLICT DO NOTHING
  RETURNING email_key
), placed AS MATERIALIZED (
  SELECT a.*, coalesce(u.id, a.user_id) AS owner_id, coalesce(u.wallet, a.wallet) AS goes_to,
         new_users.email_key IS NOT NULL AS is_new,
         a.subject IS NOT NULL AND new_users.email_key IS NULL AND u.id IS NULL AS is_unseen
    FROM accepted a
    LEFT JOIN new_users ON new_users.email_key = a.email_key
    LEFT JOIN LATERAL (SELECT id, wallet FROM users WHERE users.email_key = a.email_key LIMIT 1) u
           ON true
), counted AS (
  INSERT INTO event_claim_totals (brand_id, event_type, claims, maximum)
  SELECT brand_id, event_type,
         count(*) + coalesce(
           (SELECT t.claims FROM event_claim_totals t
             WHERE t.brand_id = a.brand_id AND t.event_type = a.event_type),
           (SELECT sum(c.claims) FROM event_claims c
             WHERE c.brand_id = a.brand_id AND c.event_type = a.event_type),
           0),
         max(maximum)
    FROM accepted a
   WHERE maximum IS NOT NULL
   GROUP BY brand_id, event_type
   ORDER BY brand_id, event_type
      ON CONFLICT (brand_id, event_type) DO UPDATE
     SET claims = event_claim_totals.claims + (
           SELECT count(*) FROM accepted a
            WHERE a.brand_id = excluded.brand_id AND a.event_type = excluded.event_type
              AND a.maximum IS NOT NULL),
         maximum = excluded.maximum
), used AS (
  INSERT INTO brand_usage (brand_id, kind, window_start, used, maximum)
  SELECT brand_id, 'ltz_per_day', day, sum(ltz), max(budget)
    FROM accepted
   WHERE budget IS NOT NULL AND ltz > 0
   GROUP BY brand_id, day
   UNION ALL
  SELECT brand_id, 'wallets_per_hour', hour, count(*), max(most_wallets)
    FROM (SELECT DISTINCT ON (email_key) brand_id, hour, most_wallets
            FROM accepted
            JOIN new_users USING (email_key)
           ORDER BY email_key, most_wallets NULLS LAST) AS created
   WHERE most_wallets IS NOT NULL
   GROUP BY brand_id, hour
   ORDER BY 1, 2, 3
      ON CONFLICT (brand_id, kind, window_start) DO UPDATE
     SET used = brand_usage.used + excluded.used, maximum = excluded.maximum
), recorded AS (
  INSERT INTO events (id, brand_id, event_type, email, user_id, domain, source, user_identifier,
                      metadata, ltz)
  SELECT id, brand_id, event_type, email, owner_id, domain, source, user_identifier,
         metadata::jsonb, ltz
    FROM placed
), owed AS (
  INSERT INTO rewards (id, kind, brand_id, wallet, ltz, earned_on)
  SELECT id, $24, brand_id, goes_to, ltz, earned_on FROM placed WHERE ltz > 0
)
SELECT brand_id, event_type, email_key, owner_id, goes_to, is_new, id, is_unseen
  FROM placed
 WHERE EXISTS (SELECT FROM claimed)
"""

# The faster process may have inserted the user with another subject and another wallet.
_REREAD_USERS = """
WITH unseen AS (
  SELECT event.id, event.wallet, u.id AS user_id, u.wallet AS now_at
    FROM unnest($1::uuid[], $2::text[], $3::bytea[]) AS event (id, email_key, wallet)
    JOIN users u USING (email_key)
), corrected AS (
  UPDATE events e SET user_id = unseen.user_id
    FROM unseen
   WHERE e.id = unseen.id AND e.user_id <> unseen.user_id
), behind AS (
  INSERT INTO former_wallets (wallet, user_id)
  SELECT DISTINCT wallet, user_id FROM unseen WHERE wallet <> now_at
      ON CONFLICT DO NOTHING
)
SELECT id, user_id FROM unseen
"""


class StoredEvent(msgspec.Struct, frozen=True):
    """An event and the state of its reward. `hash` is the mint's, or else the newest published
    attempt's.
    """

    id: UUID
    event_type: str
    ltz: int
    wallet: Address
    created_at: datetime
    hash: Hash32 | None
    mint_block_number: int | None
    is_final: bool
    is_failed: bool


async def delete_expired(connection: Connection) -> None:
    """Delete nonces whose signatures have expired, and usage windows that are over."""
    await batches.run(
        connection,
        """
        DELETE FROM request_nonces
         WHERE (brand_id, nonce) IN (SELECT brand_id, nonce
                                       FROM request_nonces
                                      WHERE created_at < now() - $2::interval
                                      ORDER BY created_at
                                      LIMIT $1
                                        FOR UPDATE SKIP LOCKED)
        """,
        timedelta(seconds=NONCE_SECONDS),
    )
    await connection.execute(
        "DELETE FROM brand_usage WHERE window_start < now() - interval '3 days'"
    )


async def recorded(connection: Connection, ids: Collection[UUID]) -> set[UUID]:
    """The ids among these whose events are stored."""
    rows = await connection.fetch("SELECT id FROM events WHERE id = ANY($1::uuid[])", list(ids))
    return {row["id"] for row in rows}


async def find(connection: Connection, event_id: UUID) -> StoredEvent | None:
    row = await connection.fetchrow(
        """
        SELECT e.id, e.event_type, e.ltz, coalesce(r.wallet, u.wallet), e.created_at,
               coalesce(r.mint_transaction_hash, (
                 SELECT a.hash FROM attempts a
                  WHERE a.transaction_id = r.transaction_id AND a.published_at IS NOT NULL
                    AND NOT a.is_cancellation
                  ORDER BY a.published_at DESC LIMIT 1)),
               r.mint_block_number,
               coalesce(r.mint_block_number <= (SELECT final_number FROM chains), false),
               r.failed_at IS NOT NULL
          FROM events e
          JOIN users u ON u.id = e.user_id
          LEFT JOIN rewards r ON r.id = e.id
         WHERE e.id = $1
        """,
        event_id,
    )
    return StoredEvent(*row) if row else None

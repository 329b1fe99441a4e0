"""Events and the claims they make: one row per brand, event type and user is the lock.

Whoever writes events first locks their claims (`lock_claims`), in one order, then their totals,
then the users: so two writers never wait for each other in a circle.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ltzd.rules.events import ClaimRecord
from ltzd.store.database import Connection
from ltzd.store.signals import ORIGIN
from ltzd.values import Address, Hash32

ClaimKey = tuple[Address, str, str]
"""Brand, event type, e-mail key."""
TotalKey = tuple[Address, str]
"""Brand, event type."""

EVENT_REWARD = 1
"""The kind of an event's reward, in rows and references (contracts.md)."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event to be written; `wallet` receives `ltz` whole LTZ, if that is more than 0."""

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


async def find_claim(connection: Connection, key: ClaimKey) -> tuple[ClaimRecord, datetime]:
    """The claim as it stands, without a lock, and the database's time."""
    row = await connection.fetchrow(
        """
        SELECT c.claims, c.last_event_id, c.last_event_at, clock_timestamp() AS now
          FROM (SELECT 1) AS always
          LEFT JOIN claims c ON c.brand_id = $1 AND c.event_type = $2 AND c.email_key = $3
        """,
        *key,
    )
    assert row is not None
    return ClaimRecord(row["claims"] or 0, row["last_event_id"], row["last_event_at"]), row["now"]


async def find_total(connection: Connection, key: TotalKey) -> int:
    """Claims of all users together, without a lock."""
    total: int = await connection.fetchval(
        """
        SELECT coalesce(
                 (SELECT claims FROM claim_totals WHERE brand_id = $1 AND event_type = $2),
                 (SELECT sum(claims) FROM claims WHERE brand_id = $1 AND event_type = $2),
                 0)::bigint
        """,
        *key,
    )
    return total


async def lock_claims(
    connection: Connection, keys: Iterable[ClaimKey]
) -> tuple[dict[ClaimKey, ClaimRecord], datetime]:
    """Lock these claims to the commit, making missing ones; answers them and the time after."""
    ordered = sorted(set(keys))
    rows = await connection.fetch(
        """
        INSERT INTO claims (brand_id, event_type, email_key)
        SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[])
            ON CONFLICT (brand_id, event_type, email_key) DO UPDATE SET claims = claims.claims
     RETURNING brand_id, event_type, email_key, claims, last_event_id, last_event_at,
               clock_timestamp() AS now
        """,
        [key[0] for key in ordered],
        [key[1] for key in ordered],
        [key[2] for key in ordered],
    )
    claims = {
        (Address(row["brand_id"]), row["event_type"], row["email_key"]): ClaimRecord(
            row["claims"], row["last_event_id"], row["last_event_at"]
        )
        for row in rows
    }
    return claims, max(row["now"] for row in rows)


async def lock_totals(connection: Connection, keys: Iterable[TotalKey]) -> dict[TotalKey, int]:
    """Lock the totals of event types that have a global maximum; a missing one is counted first."""
    ordered = sorted(set(keys))
    if not ordered:
        return {}
    rows = await connection.fetch(
        """
        INSERT INTO claim_totals (brand_id, event_type, claims)
        SELECT brand_id, event_type, (
                 SELECT coalesce(sum(c.claims), 0) FROM claims c
                  WHERE c.brand_id = wanted.brand_id AND c.event_type = wanted.event_type)
          FROM unnest($1::bytea[], $2::text[]) AS wanted (brand_id, event_type)
            ON CONFLICT (brand_id, event_type) DO UPDATE SET claims = claim_totals.claims
     RETURNING brand_id, event_type, claims
        """,
        [key[0] for key in ordered],
        [key[1] for key in ordered],
    )
    return {(Address(row["brand_id"]), row["event_type"]): row["claims"] for row in rows}


async def write(
    connection: Connection,
    those: Sequence[EventRow],
    claims: Mapping[ClaimKey, ClaimRecord],
    totals: Mapping[TotalKey, int],
) -> None:
    """Write events, their rewards, the claims and totals as they are now, and the wake-up."""
    rewarded = [event for event in those if event.ltz > 0]
    await connection.execute(
        """
        WITH claimed AS (
          UPDATE claims
             SET claims = new.claims, last_event_id = new.last_event_id,
                 last_event_at = new.last_event_at
            FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bigint[], $5::uuid[],
                        $6::timestamptz[])
                 AS new (brand_id, event_type, email_key, claims, last_event_id, last_event_at)
           WHERE claims.brand_id = new.brand_id AND claims.event_type = new.event_type
             AND claims.email_key = new.email_key
        ), counted AS (
          UPDATE claim_totals
             SET claims = new.claims
            FROM unnest($7::bytea[], $8::text[], $9::bigint[]) AS new (brand_id, event_type, claims)
           WHERE claim_totals.brand_id = new.brand_id AND claim_totals.event_type = new.event_type
        ), recorded AS (
          INSERT INTO events (id, brand_id, event_type, email, user_id, domain, source,
                              user_identifier, metadata, ltz)
          SELECT id, brand_id, event_type, email, user_id, domain, source, user_identifier,
                 metadata::jsonb, ltz
            FROM unnest($10::uuid[], $11::bytea[], $12::text[], $13::text[], $14::uuid[],
                        $15::text[], $16::text[], $17::text[], $18::text[], $19::bigint[])
                 AS new (id, brand_id, event_type, email, user_id, domain, source,
                         user_identifier, metadata, ltz)
        ), owed AS (
          INSERT INTO rewards (id, kind, brand_id, wallet, ltz)
          SELECT id, $24, brand_id, wallet, ltz
            FROM unnest($20::uuid[], $21::bytea[], $22::bytea[], $23::bigint[])
                 AS new (id, brand_id, wallet, ltz)
        )
        SELECT pg_notify('ltzd_rewards', $25)
        """,
        [key[0] for key in claims],
        [key[1] for key in claims],
        [key[2] for key in claims],
        [claim.claims for claim in claims.values()],
        [claim.last_event_id for claim in claims.values()],
        [claim.last_event_at for claim in claims.values()],
        [key[0] for key in totals],
        [key[1] for key in totals],
        list(totals.values()),
        [event.id for event in those],
        [event.brand_id for event in those],
        [event.event_type for event in those],
        [event.email for event in those],
        [event.user_id for event in those],
        [event.domain for event in those],
        [event.source for event in those],
        [event.user_identifier for event in those],
        [msgspec.json.encode(event.metadata).decode() for event in those],
        [event.ltz for event in those],
        [event.id for event in rewarded],
        [event.brand_id for event in rewarded],
        [event.wallet for event in rewarded],
        [event.ltz for event in rewarded],
        EVENT_REWARD,
        ORIGIN,
    )


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event with what became of its reward. `hash` is the mint's, else the newest published."""

    id: UUID
    event_type: str
    ltz: int
    wallet: Address
    created_at: datetime
    hash: Hash32 | None
    mint_block_number: int | None
    is_final: bool


async def find(connection: Connection, event_id: UUID) -> StoredEvent | None:
    row = await connection.fetchrow(
        """
        SELECT e.id, e.event_type, e.ltz, u.wallet, e.created_at,
               coalesce(r.mint_transaction_hash, (
                 SELECT a.hash FROM attempts a
                  WHERE a.transaction_id = r.transaction_id AND a.published_at IS NOT NULL
                  ORDER BY a.published_at DESC LIMIT 1)),
               r.mint_block_number,
               coalesce(r.mint_block_number <= (SELECT final_number FROM chains), false)
          FROM events e
          JOIN users u ON u.id = e.user_id
          LEFT JOIN rewards r ON r.id = e.id
         WHERE e.id = $1
        """,
        event_id,
    )
    return StoredEvent(*row) if row else None

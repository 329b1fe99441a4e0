"""Erases users' e-mail addresses and keeps what limits, wallets and books rest on.

In `users`, `event_claims`, `site_members` and `custodial_accounts` the erased key takes the
address's place, so a later event of the same address belongs to the same user and the same claims.
A proof in `address_proofs` moves to the user, or is deleted if there is none. A new event commits
either before an erasure or after it: writers of events wait for a moment.
"""

from collections.abc import Sequence
from datetime import datetime
from operator import add
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import astuple

from ltzd.store.database import Connection
from ltzd.store.users.erased_addresses import PREFIX, ErasedAddresses

ERASED_NAME = "erased"
"""Stands for a member's name at a brand's site."""

_LOCK_SECONDS = 1
_LOCKED_LOOKUPS: Final = 5_000
"""Look-ups of one transaction that keeps writers of events out: some tens of milliseconds."""
SCAN_SECONDS: Final = 3600.0
"""The longest time for a statement that reads a whole table."""
_EVENTS_A_STATEMENT = 1_000


class ErasedRows(msgspec.Struct, frozen=True):
    """How many rows of each kind were changed; all 0 if everything had been erased before."""

    users: int
    claims: int
    members: int
    accounts: int
    proofs: int

    def plus(self, other: "ErasedRows") -> "ErasedRows":
        return ErasedRows(*map(add, astuple(self), astuple(other)))


async def hide_addresses(
    connection: Connection, erased: ErasedAddresses, email_keys: Sequence[str]
) -> ErasedRows:
    """Put the erased key in the place of each of these addresses, in the order in which they come.

    Writers of events wait for each transaction, so it has no more addresses than it can look for in
    all types of events within a moment. Each waits up to a second for writers that are at work;
    raises asyncpg.LockNotAvailableError after it, and the rest of the addresses stays. Events and
    names at sites keep the address: see `clear_events` and `end_memberships`.
    """
    await erased.prepare(connection)
    plain = [key for key in dict.fromkeys(email_keys) if not key.startswith(PREFIX)]
    hidden = [erased.prepared_key_of(key) for key in plain]
    at_once = await addresses_within(connection, _LOCKED_LOOKUPS)
    done = ErasedRows(0, 0, 0, 0, 0)
    for start in range(0, len(plain), at_once):
        part = slice(start, start + at_once)
        done = done.plus(await _hide(connection, plain[part], hidden[part]))
    return done


async def addresses_within(connection: Connection, lookups: int) -> int:
    """How many addresses so many look-ups find the claims of, at least one.

    An address is looked for in each brand's types of events: claims have no index by address.
    """
    types: int = await connection.fetchval("SELECT count(*) FROM claimed_event_types")
    return max(1, lookups // max(1, types))


async def _hide(connection: Connection, plain: Sequence[str], hidden: Sequence[str]) -> ErasedRows:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
        # A statement that inserts events takes its snapshot after this lock, so it finds either
        # the plain keys or the erased ones in all tables.
        await connection.execute("LOCK TABLE event_claims IN SHARE ROW EXCLUSIVE MODE")
        return ErasedRows(
            claims=await _changed(connection, _HIDE_CLAIMS, plain, hidden),
            users=await _changed(connection, _HIDE_USERS, plain, hidden),
            proofs=await _changed(connection, _DELETE_PROOFS, plain, hidden),
            members=await _changed(connection, _HIDE_MEMBERS, plain, hidden),
            accounts=await _changed(connection, _HIDE_ACCOUNTS, plain, hidden),
        )


async def clear_events(connection: Connection, user_id: UUID) -> int:
    """Clear address, identifier and metadata of all the user's events; returns how many had one.

    Reads the whole table of events once, since nothing else asks for a user's events.
    """
    rows = await connection.fetch(
        """
        SELECT id FROM events
         WHERE user_id = $1 AND num_nonnulls(email, user_identifier, metadata) > 0
        """,
        user_id,
        timeout=SCAN_SECONDS,
    )
    ids = [row["id"] for row in rows]
    for start in range(0, len(ids), _EVENTS_A_STATEMENT):
        await connection.execute(
            """
            UPDATE events e SET email = NULL, user_identifier = NULL, metadata = NULL
              FROM unnest($1::uuid[]) AS due (id)
             WHERE e.id = due.id
            """,
            ids[start : start + _EVENTS_A_STATEMENT],
        )
    return len(ids)


async def end_memberships(connection: Connection, user_id: UUID) -> int:
    """Clear the user's names at brands' sites, and end links; returns how many members there are.

    A member who logs in again is a member again, with the name that the site says then.
    """
    rows = await connection.fetch(
        """
        UPDATE site_members m
           SET username = $2, link_id = NULL, subject = NULL, linked_at = NULL, wallet = u.wallet
          FROM users u
         WHERE m.user_id = $1 AND u.id = m.user_id
           AND (m.username <> $2 OR m.link_id IS NOT NULL)
     RETURNING true
        """,
        user_id,
        ERASED_NAME,
    )
    return len(rows)


async def hide_members(
    connection: Connection, erased: ErasedAddresses, user_ids: Sequence[UUID]
) -> int:
    """Hide the addresses that these users' members have at sites; returns how many were hidden.

    A user whose address was erased may log in again: the log-in stores the address with the member
    alone, and the user keeps the erased key, by which `hide_addresses` does not find the address.
    """
    rows = await connection.fetch(
        """
        SELECT DISTINCT email_key FROM site_members
         WHERE user_id = ANY($1::uuid[]) AND email_key NOT LIKE 'erased:%'
        """,
        user_ids,
    )
    plain = [row["email_key"] for row in rows]
    if not plain:
        return 0
    await erased.prepare(connection)
    hidden = [erased.prepared_key_of(key) for key in plain]
    done = await connection.fetch(
        """
        UPDATE site_members m
           SET email_key = given.hidden
          FROM unnest($2::text[], $3::text[]) AS given (plain, hidden)
         WHERE m.user_id = ANY($1::uuid[]) AND m.email_key = given.plain
     RETURNING true
        """,
        user_ids,
        plain,
        hidden,
    )
    return len(done)


async def end_links(connection: Connection, subjects: Sequence[str]) -> int:
    """End the links that these owners have given to members of sites, and delete open codes.

    Returns how many links were ended.
    """
    await connection.execute(
        "DELETE FROM site_link_codes WHERE subject = ANY($1::text[])", subjects
    )
    rows = await connection.fetch(
        """
        UPDATE site_members m
           SET link_id = NULL, wallet = u.wallet
          FROM users u, site_links l
         WHERE l.subject = ANY($1::text[]) AND m.link_id = l.id AND u.id = m.user_id
     RETURNING true
        """,
        subjects,
    )
    return len(rows)


async def clear_account_names(connection: Connection, wallets: Sequence[bytes]) -> int:
    """Clear names at OAuth providers and what brands sent with their requests; returns the count.

    The accounts' ids stay: they lead to the wallets.
    """
    rows = await connection.fetch(
        """
        WITH named AS (
          UPDATE pregenerations SET oauth_username = NULL
           WHERE wallet = ANY($1::bytea[]) AND oauth_username IS NOT NULL
       RETURNING true
        ), asked AS (
          UPDATE pregeneration_requests r SET metadata = NULL
            FROM pregenerations p
           WHERE p.wallet = ANY($1::bytea[]) AND r.metadata IS NOT NULL
             AND (r.oauth_provider, r.oauth_user_id) = (p.oauth_provider, p.oauth_user_id)
       RETURNING true
        )
        SELECT FROM named UNION ALL SELECT FROM asked
        """,
        wallets,
        timeout=SCAN_SECONDS,
    )
    return len(rows)


async def record(connection: Connection, user_id: UUID) -> None:
    """Record that a person has asked for this erasure."""
    await connection.execute(
        """
        INSERT INTO erasures (user_id) VALUES ($1)
            ON CONFLICT (user_id) DO UPDATE SET erased_at = now()
        """,
        user_id,
    )


async def recorded(connection: Connection) -> list[tuple[UUID, datetime]]:
    """All erasures that persons have asked for, the oldest first, with their times."""
    rows = await connection.fetch(
        "SELECT user_id, erased_at FROM erasures ORDER BY erased_at, user_id"
    )
    return [(row["user_id"], row["erased_at"]) for row in rows]


async def _changed(
    connection: Connection, statement: str, plain: Sequence[str], hidden: Sequence[str]
) -> int:
    done: str = await connection.execute(statement, plain, hidden)
    return int(done.rpartition(" ")[2])


# An erased key that is taken belongs to the user who was first erased under this address: a second
# row of the address must not stay readable, and leads nowhere from then on.
_HIDE_CLAIMS = """
UPDATE event_claims c
   SET email_key = given.hidden || CASE WHEN EXISTS (
         SELECT FROM event_claims h
          WHERE (h.brand_id, h.event_type, h.email_key) = (c.brand_id, c.event_type, given.hidden)
       ) THEN ':' || gen_random_uuid() ELSE '' END
  FROM claimed_event_types t, unnest($1::text[], $2::text[]) AS given (plain, hidden)
 WHERE (c.brand_id, c.event_type, c.email_key) = (t.brand_id, t.event_type, given.plain)
"""
_HIDE_USERS = """
UPDATE users u
   SET email_key = given.hidden || CASE WHEN EXISTS (
         SELECT FROM users h WHERE h.email_key = given.hidden) THEN ':' || u.id ELSE '' END
  FROM unnest($1::text[], $2::text[]) AS given (plain, hidden)
 WHERE u.email_key = given.plain
"""
_DELETE_PROOFS = """
WITH deleted AS (
  DELETE FROM address_proofs p
   USING unnest($1::text[], $2::text[]) AS given (plain, hidden)
   WHERE p.email_key = given.plain
  RETURNING p.person, given.hidden
), taken_over AS (
  UPDATE users u SET proven_by = deleted.person
    FROM deleted
   WHERE u.email_key = deleted.hidden AND u.proven_by IS NULL
)
SELECT FROM deleted
"""
_HIDE_MEMBERS = """
UPDATE site_members m
   SET email_key = given.hidden
  FROM unnest($1::text[], $2::text[]) AS given (plain, hidden)
  JOIN users u ON u.email_key = given.hidden
 WHERE m.user_id = u.id AND m.email_key = given.plain
"""
_HIDE_ACCOUNTS = """
UPDATE custodial_accounts a
   SET name = given.hidden || CASE WHEN EXISTS (
         SELECT FROM custodial_accounts h WHERE h.kind = 'email' AND h.name = given.hidden
       ) THEN ':' || a.subject ELSE '' END
  FROM unnest($1::text[], $2::text[]) AS given (plain, hidden)
 WHERE a.kind = 'email' AND a.name = given.plain
"""

"""Links of brands' site members to wallets, and the codes that make them.

A link is active while its member's row names it (the view `active_site_links`). So it ends with a
change of that row: when the member or the owner ends it, when the member gets another e-mail
address, and when it expires. Writers that make a link or spend through one lock the member's row.

Codes are stored as keyed hashes, which the caller computes. A link's id is the beginning of its
code's hash, so a code makes one link. The code is deleted once that link is known to be committed;
until then a repeated request finds the link (`made_by`). Order of locks: owner, code, member.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from ltzd.rules.site_plugin.links import CODE_LIFE, LINK_LIFE, CodeAttempts
from ltzd.store.database import Connection
from ltzd.store.site_plugin.members import Member
from ltzd.values import Address

_MOST_EXPIRED = 100
"""Codes deleted along with each new one."""


class NewCode(msgspec.Struct, frozen=True):
    """`wallets` are the owner's, at least one; `daily_allowance` is in whole LTZ."""

    code_hash: bytes
    brand_id: Address
    host: str
    subject: str
    wallets: tuple[Address, ...]
    daily_allowance: int


class OpenCodes(msgspec.Struct, frozen=True):
    """One owner's codes. `first_end` is the earliest expiry."""

    number: int
    first_end: datetime | None
    now: datetime


class LockedCode(msgspec.Struct, frozen=True):
    """The contents of a code that has not expired."""

    code_hash: bytes
    subject: str
    wallets: tuple[Address, ...]
    daily_allowance: int


class LockedMember(msgspec.Struct, frozen=True):
    """The facts that a link is decided on.

    `own_wallet` is the wallet of the member's e-mail address; `subjects` are the owners whose links
    the member has had with this address.
    """

    user_id: UUID
    own_wallet: Address
    subjects: frozenset[str]
    tries: CodeAttempts
    now: datetime


class Link(msgspec.Struct, frozen=True):
    """`daily_allowance` is in whole LTZ."""

    brand_id: Address
    host: str
    username: str
    wallet: Address
    daily_allowance: int
    linked_at: datetime
    expires_at: datetime


# Codes


async def lock_owner(connection: Connection, subject: str) -> None:
    """Serialise changes of this owner's codes until the transaction ends."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('site links of ' || $1, 0))", subject
    )


async def open_codes(connection: Connection, subject: str) -> OpenCodes:
    """The owner's open codes, under the owner's lock. Also deletes some expired codes of all
    owners.
    """
    await connection.execute(
        """
        DELETE FROM site_link_codes
         WHERE code_hash IN (SELECT code_hash
                               FROM site_link_codes
                              WHERE expires_at < clock_timestamp()
                              ORDER BY expires_at
                              LIMIT $1
                                FOR UPDATE SKIP LOCKED)
        """,
        _MOST_EXPIRED,
    )
    row = await connection.fetchrow(
        """
        SELECT count(*), min(expires_at), clock_timestamp()
          FROM site_link_codes
         WHERE subject = $1 AND expires_at > clock_timestamp()
        """,
        subject,
    )
    return OpenCodes(*row)


async def add_code(connection: Connection, new: NewCode) -> datetime | None:
    """Return the code's expiry, or None if another code has this hash or has had it."""
    expires_at: datetime | None = await connection.fetchval(
        """
        INSERT INTO site_link_codes (code_hash, brand_id, host, subject, wallets, daily_allowance,
                                     expires_at)
        SELECT $1, $2, $3, $4, $5, $6, clock_timestamp() + $7::interval
         WHERE NOT EXISTS (SELECT FROM site_links WHERE id = $8)
            ON CONFLICT (code_hash) DO NOTHING
     RETURNING expires_at
        """,
        new.code_hash,
        new.brand_id,
        new.host,
        new.subject,
        list(new.wallets),
        new.daily_allowance,
        CODE_LIFE,
        _link_id(new.code_hash),
    )
    return expires_at


async def lock_code(connection: Connection, hashes: Sequence[bytes]) -> LockedCode | None:
    """Lock the code until the transaction ends; returns None if no unexpired code has any of these
    hashes.
    """
    row = await connection.fetchrow(
        """
        SELECT code_hash, subject, wallets, daily_allowance
          FROM site_link_codes
         WHERE code_hash = ANY($1::bytea[]) AND expires_at > clock_timestamp()
           FOR UPDATE
        """,
        list(hashes),
    )
    if row is None:
        return None
    code_hash, subject, wallets, daily_allowance = row
    return LockedCode(code_hash, subject, tuple(map(Address, wallets)), daily_allowance)


async def is_used(connection: Connection, code: LockedCode) -> bool:
    """Whether a locked code has made a link, which may have ended."""
    used: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM site_links WHERE id = $1)", _link_id(code.code_hash)
    )
    return used


async def delete_code(connection: Connection, code: LockedCode) -> None:
    await connection.execute("DELETE FROM site_link_codes WHERE code_hash = $1", code.code_hash)


def _link_id(code_hash: bytes) -> UUID:
    return UUID(bytes=code_hash[:16])


# Making links


async def lock_member(connection: Connection, member: Member) -> LockedMember | None:
    """Serialise linking, check-ins and spending of this member until the transaction ends."""
    row = await connection.fetchrow(
        """
        SELECT user_id, failed_code_count, failed_codes_since
          FROM site_members
         WHERE brand_id = $1 AND host = $2 AND site_user_id = $3
           FOR UPDATE
        """,
        member.brand_id,
        member.host,
        member.site_user_id,
    )
    if row is None:
        return None
    facts = await connection.fetchrow(
        """
        SELECT wallet,
               ARRAY(SELECT DISTINCT subject
                       FROM site_links
                      WHERE brand_id = $2 AND host = $3 AND site_user_id = $4
                        AND user_id = $1) AS subjects,
               clock_timestamp() AS now
          FROM users
         WHERE id = $1
        """,
        row["user_id"],
        member.brand_id,
        member.host,
        member.site_user_id,
    )
    return LockedMember(
        user_id=row["user_id"],
        own_wallet=Address(facts["wallet"]),
        subjects=frozenset(facts["subjects"]),
        tries=CodeAttempts(row["failed_code_count"], row["failed_codes_since"]),
        now=facts["now"],
    )


async def save_tries(connection: Connection, member: Member, tries: CodeAttempts) -> None:
    """Store the failed tries of a locked member."""
    await connection.execute(
        """
        UPDATE site_members SET failed_code_count = $4, failed_codes_since = $5
         WHERE brand_id = $1 AND host = $2 AND site_user_id = $3
        """,
        member.brand_id,
        member.host,
        member.site_user_id,
        tries.wrong,
        tries.since,
    )


async def link(connection: Connection, member: Member, code: LockedCode, wallet: Address) -> None:
    """Give a locked member this wallet of the code's owner, in place of any earlier link."""
    await connection.execute(
        """
        WITH made AS (
          INSERT INTO site_links (id, brand_id, host, site_user_id, user_id, subject, wallet,
                                  daily_allowance, expires_at)
          VALUES ($4, $1, $2, $3, $5, $6, $7, $8, clock_timestamp() + $9::interval)
        )
        UPDATE site_members SET link_id = $4, wallet = $7
         WHERE brand_id = $1 AND host = $2 AND site_user_id = $3
        """,
        member.brand_id,
        member.host,
        member.site_user_id,
        _link_id(code.code_hash),
        member.user_id,
        code.subject,
        wallet,
        code.daily_allowance,
        LINK_LIFE,
    )


async def made_by(connection: Connection, member: Member, code: LockedCode) -> Link | None:
    """The member's active link if this code has made it."""
    row = await connection.fetchrow(
        """
        SELECT brand_id, host, username, wallet, daily_allowance, linked_at, expires_at
          FROM active_site_links
         WHERE id = $4 AND brand_id = $1 AND host = $2 AND site_user_id = $3
        """,
        member.brand_id,
        member.host,
        member.site_user_id,
        _link_id(code.code_hash),
    )
    return None if row is None else Link(*row)


# Ending links


async def clear_ended_link(connection: Connection, member: Member) -> None:
    """Give the member the wallet of the e-mail address if the link in the member's row has
    ended.
    """
    await connection.execute(
        """
        UPDATE site_members m
           SET link_id = NULL, wallet = u.wallet
          FROM users u
         WHERE m.brand_id = $1 AND m.host = $2 AND m.site_user_id = $3 AND u.id = m.user_id
           AND m.link_id IS NOT NULL
           AND NOT EXISTS (SELECT FROM active_site_links l WHERE l.id = m.link_id)
        """,
        member.brand_id,
        member.host,
        member.site_user_id,
    )


async def end_member_link(connection: Connection, member: Member) -> bool:
    """Return whether there was a link."""
    ended = await connection.fetchval(
        """
        UPDATE site_members m
           SET link_id = NULL, wallet = u.wallet
          FROM users u
         WHERE m.brand_id = $1 AND m.host = $2 AND m.site_user_id = $3 AND u.id = m.user_id
           AND m.link_id IS NOT NULL
     RETURNING true
        """,
        member.brand_id,
        member.host,
        member.site_user_id,
    )
    return bool(ended)


async def end_owner_links(connection: Connection, subject: str, host: str) -> int:
    """End the owner's links and delete the owner's open codes at this host; returns how many there
    were.

    Codes are deleted first: a concurrent user of a code has linked a member before the links are
    ended.
    """
    codes = await connection.fetch(
        "DELETE FROM site_link_codes WHERE subject = $1 AND host = $2 RETURNING true", subject, host
    )
    links = await connection.fetch(
        """
        WITH linked AS MATERIALIZED (
          SELECT m.brand_id, m.host, m.site_user_id
            FROM site_links l
            JOIN site_members m ON m.link_id = l.id
           -- IS NOT NULL: while no member is linked, the planner would read all members instead.
           WHERE l.subject = $1 AND l.host = $2 AND m.link_id IS NOT NULL
           ORDER BY 1, 2, 3
             FOR UPDATE OF m
        )
        UPDATE site_members m
           SET link_id = NULL, wallet = u.wallet
          FROM linked, users u
         WHERE m.brand_id = linked.brand_id AND m.host = linked.host
           AND m.site_user_id = linked.site_user_id AND u.id = m.user_id
     RETURNING true
        """,
        subject,
        host,
    )
    return len(codes) + len(links)


async def list_of_owner(connection: Connection, subject: str) -> list[Link]:
    """The owner's active links, the oldest first."""
    rows: list[asyncpg.Record] = await connection.fetch(
        """
        SELECT brand_id, host, username, wallet, daily_allowance, linked_at, expires_at
          FROM active_site_links
         WHERE subject = $1
         ORDER BY linked_at, id
        """,
        subject,
    )
    return [Link(*row) for row in rows]

"""Who logs in at the brands' sites, and the wallet that each of them has there.

It is the one of the e-mail address that the site names, until the site's user has shown another to
be his. With another address he is somebody else, who has shown nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from ltzd.store.database import Connection
from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class Member:
    """A user of one brand's site. `subject` is set once he has shown that the wallet is his."""

    brand_id: Address
    host: str
    site_user_id: int
    username: str
    user_id: UUID
    wallet: Address
    subject: str | None


@dataclass(frozen=True, slots=True)
class Known:
    """A member, and the e-mail address under which he is known, in lower case."""

    member: Member
    email_key: str


async def find(
    connection: Connection, brand_id: Address, host: str, site_user_id: int
) -> Known | None:
    row = await connection.fetchrow(
        """
        SELECT brand_id, host, site_user_id, username, user_id, wallet, subject, email_key
          FROM site_members
         WHERE brand_id = $1 AND host = $2 AND site_user_id = $3
        """,
        brand_id,
        host,
        site_user_id,
    )
    return None if row is None else Known(Member(*row[:-1]), row[-1])


async def keep(connection: Connection, met: Member, email_key: str) -> Member:
    """The member as he is now known. With the address that he had, only his name is taken from
    `met`: he may have shown his wallet meanwhile."""
    row = await connection.fetchrow(
        """
        INSERT INTO site_members AS m
               (brand_id, host, site_user_id, username, user_id, wallet, email_key)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
            ON CONFLICT (brand_id, host, site_user_id) DO UPDATE
           SET username = excluded.username,
               email_key = excluded.email_key,
               user_id = CASE WHEN m.email_key = $7 THEN m.user_id ELSE excluded.user_id END,
               wallet = CASE WHEN m.email_key = $7 THEN m.wallet ELSE excluded.wallet END,
               subject = CASE WHEN m.email_key = $7 THEN m.subject END,
               linked_at = CASE WHEN m.email_key = $7 THEN m.linked_at END,
               seen_at = now()
        RETURNING brand_id, host, site_user_id, username, user_id, wallet, subject
        """,
        met.brand_id,
        met.host,
        met.site_user_id,
        met.username,
        met.user_id,
        met.wallet,
        email_key,
    )
    return Member(*row)


async def link(
    connection: Connection, member: Member, subject: str, wallets: Sequence[Address]
) -> Member | None:
    """Give the member his e-mail address's wallet if it is one of `wallets`, else the first.

    None, and nothing changed, if he has got another address meanwhile, or is linked to another
    subject: with a wallet for each of many he would earn and redeem as many times. Back to his
    address's own wallet he always may.
    """
    row = await connection.fetchrow(
        """
        UPDATE site_members m
           SET subject = $5,
               wallet = CASE WHEN u.wallet = ANY($6::bytea[]) THEN u.wallet ELSE $7 END,
               linked_at = now(),
               seen_at = now()
          FROM users u
         WHERE m.brand_id = $1 AND m.host = $2 AND m.site_user_id = $3
           AND m.user_id = $4 AND u.id = m.user_id
           AND (m.subject IS NULL OR m.subject = $5 OR u.wallet = ANY($6::bytea[]))
     RETURNING m.brand_id, m.host, m.site_user_id, m.username, m.user_id, m.wallet, m.subject
        """,
        member.brand_id,
        member.host,
        member.site_user_id,
        member.user_id,
        subject,
        list(wallets),
        wallets[0],
    )
    return None if row is None else Member(*row)

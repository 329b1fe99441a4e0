"""Members of brands' sites, and the wallet that each of them has there.

A member has the wallet of the e-mail address that the site names or, while a link is active
(`links.py`), the wallet that its owner gave. With another address the member is another person, who
has earned nothing there and is not linked.
"""

from uuid import UUID

import msgspec

from ltzd.store.database import Connection
from ltzd.values import Address


class Member(msgspec.Struct, frozen=True):
    """A user of one brand's site.

    `subject` is the active link's owner at the identity provider, or None without a link.
    `email_confirmed` is the site's statement about the address at this log-in, and is not stored.
    """

    brand_id: Address
    host: str
    site_user_id: int
    username: str
    user_id: UUID
    wallet: Address
    subject: str | None
    email_confirmed: bool | None = None


class MemberRecord(msgspec.Struct, frozen=True):
    """A member, and the stored e-mail address in lower case.

    `has_ended_link`: the row names a link that has ended, whose wallet is no longer the member's
    (`links.clear_ended_link`). `is_visit_due`: the last visit was written more than a day ago, so
    that this one must be (`write_visit`).
    """

    member: Member
    email_key: str
    has_ended_link: bool = False
    is_visit_due: bool = False


async def find(
    connection: Connection, brand_id: Address, host: str, site_user_id: int
) -> MemberRecord | None:
    row = await connection.fetchrow(
        """
        SELECT m.brand_id, m.host, m.site_user_id, m.username, m.user_id, m.wallet, l.subject,
               m.email_key, m.link_id IS NOT NULL AND l.id IS NULL AS has_ended_link,
               m.seen_at < now() - interval '1 day' AS is_visit_due
          FROM site_members m
          LEFT JOIN active_site_links l ON l.id = m.link_id
         WHERE m.brand_id = $1 AND m.host = $2 AND m.site_user_id = $3
        """,
        brand_id,
        host,
        site_user_id,
    )
    if row is None:
        return None
    *member, email_key, has_ended_link, is_visit_due = row
    return MemberRecord(Member(*member), email_key, has_ended_link, is_visit_due)


async def write_visit(connection: Connection, member: Member) -> None:
    """Write that the member visits the site, at most once a day.

    `seen_at` may be a day too early; retention, which counts idle days from it, needs no more.
    """
    await connection.execute(
        """
        UPDATE site_members SET seen_at = now()
         WHERE brand_id = $1 AND host = $2 AND site_user_id = $3
           AND seen_at < now() - interval '1 day'
        """,
        member.brand_id,
        member.host,
        member.site_user_id,
    )


async def save(connection: Connection, new: Member, email_key: str) -> Member:
    """Store the member as logged in, and return the stored member.

    If the address is unchanged, only the username is taken from the log-in: the member may have
    been linked meanwhile.
    """
    await connection.execute(
        """
        INSERT INTO site_members AS m
               (brand_id, host, site_user_id, username, user_id, wallet, email_key)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
            ON CONFLICT (brand_id, host, site_user_id) DO UPDATE
           SET username = excluded.username,
               email_key = excluded.email_key,
               user_id = CASE WHEN m.email_key = $7 THEN m.user_id ELSE excluded.user_id END,
               wallet = CASE WHEN m.email_key = $7 THEN m.wallet ELSE excluded.wallet END,
               link_id = CASE WHEN m.email_key = $7 THEN m.link_id END,
               seen_at = now()
        """,
        new.brand_id,
        new.host,
        new.site_user_id,
        new.username,
        new.user_id,
        new.wallet,
        email_key,
    )
    known = await find(connection, new.brand_id, new.host, new.site_user_id)
    assert known is not None, "members are never deleted"
    return known.member

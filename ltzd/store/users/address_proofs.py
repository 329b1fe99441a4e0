"""Proofs of e-mail addresses that have no user yet: the person whose token first listed each.

`users.proven_by` holds the proof once the person's token has migrated the user, and the row here is
deleted. Until then a reader asks both: an event may create the user beside the token, or after the
person's last token. Rows are bounded by the accounts of the identity provider, since only a
verified token or the provider's own answer writes one.
"""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from ltzd.store.database import Connection


class ProvenAddress(msgspec.Struct, frozen=True):
    """`erased_key` is the address's key after an erasure; None if nothing was ever erased."""

    person: str
    email_key: str
    erased_key: str | None


async def insert(connection: Connection, addresses: Sequence[ProvenAddress]) -> None:
    """Remember the addresses that have no user. The first person who proves an address keeps it."""
    await connection.execute(
        """
        INSERT INTO address_proofs AS p (email_key, person)
        SELECT DISTINCT ON (shown.email_key) shown.email_key, shown.person
          FROM unnest($1::text[], $2::text[], $3::text[]) AS shown (email_key, erased_key, person)
          LEFT JOIN address_proofs earlier USING (email_key)
         WHERE NOT EXISTS (SELECT FROM users u
                            WHERE u.email_key IN (shown.email_key, shown.erased_key))
           AND (earlier.person IS NULL
                OR (earlier.person = shown.person AND earlier.shown_at < now() - interval '1 day'))
         ORDER BY shown.email_key
            ON CONFLICT (email_key) DO UPDATE SET shown_at = excluded.shown_at
         WHERE p.person = excluded.person
        """,
        [address.email_key for address in addresses],
        [address.erased_key for address in addresses],
        [address.person for address in addresses],
    )


async def expired(
    connection: Connection, after: timedelta, passed_over: Sequence[str], limit: int
) -> list[str]:
    """Up to `limit` addresses that no token has listed for that long, without `passed_over`."""
    rows = await connection.fetch(
        """
        SELECT email_key
          FROM address_proofs
         WHERE shown_at < now() - $1::interval AND email_key <> ALL($3::text[])
         ORDER BY shown_at
         LIMIT $2
        """,
        after,
        limit,
        passed_over,
    )
    return [row["email_key"] for row in rows]


async def delete(connection: Connection, after: timedelta, email_keys: Sequence[str]) -> None:
    """Delete those of these addresses that no token has listed for that long.

    A user who has come meanwhile takes the proof over.
    """
    await connection.execute(
        """
        WITH deleted AS (
          DELETE FROM address_proofs
           WHERE email_key = ANY($1::text[]) AND shown_at < now() - $2::interval
       RETURNING email_key, person
        )
        UPDATE users u SET proven_by = deleted.person
          FROM deleted
         WHERE u.email_key = deleted.email_key AND u.proven_by IS NULL
        """,
        email_keys,
        after,
    )

"""Users: one e-mail address, one wallet, across all brands.

A verified token that lists an address moves the address to the token's wallet. The id of the row
never changes, nor do earlier grants, and the wallet that the address left stays known as the
user's. Of several people who prove an address the first one keeps it; `address_proofs` holds the
proofs of addresses that have no row here yet.
"""

from collections.abc import Collection, Sequence
from uuid import UUID, uuid5

import msgspec

from ltzd.store.database import Connection
from ltzd.values import Address


class User(msgspec.Struct, frozen=True):
    id: UUID
    email_key: str
    identity_subject: str
    wallet: Address


class MigratedUser(msgspec.Struct, frozen=True):
    """A user whose address leads to another wallet from now on; `left` is the previous wallet."""

    id: UUID
    left: Address


_NAMESPACE = UUID("1b9ad1a4-3c5e-4f0e-9c38-0d3a9b6f6a51")


def user_id(subject: str, key: str) -> UUID:
    """A stable id: every process that creates the user computes the same."""
    return uuid5(_NAMESPACE, f"{subject} {key}")


def email_key(email: str) -> str:
    """The form of an e-mail address in which addresses are compared: without regard to case."""
    return email.lower()


async def find(connection: Connection, keys: Collection[str]) -> dict[str, User]:
    """The users of these keys, by their keys."""
    rows = await connection.fetch(
        """
        SELECT id, email_key, identity_subject, wallet
          FROM users
         WHERE email_key = ANY($1::text[])
        """,
        keys,
    )
    return {row["email_key"]: User(*row) for row in rows}


async def without_rows(connection: Connection, keys: Collection[str]) -> set[str]:
    """The keys that no user has; a user's former key is among them once the address was erased."""
    rows = await connection.fetch(
        """
        SELECT email_key
          FROM unnest($1::text[]) AS given (email_key)
         WHERE NOT EXISTS (SELECT FROM users u WHERE u.email_key = given.email_key)
        """,
        list(keys),
    )
    return {row["email_key"] for row in rows}


async def need_migration(
    connection: Connection, people: Sequence[tuple[str, Sequence[str]]]
) -> set[str]:
    """The people, of these, for whom `migrate_wallets` may have rows to change.

    A person is a subject, with the keys of the addresses that the person has proven.
    """
    rows = await connection.fetch(
        """
        SELECT DISTINCT proven.person
          FROM unnest($1::text[], $2::text[]) AS proven(key, person)
          JOIN users u ON u.email_key = proven.key
          LEFT JOIN address_proofs p ON p.email_key = u.email_key
         WHERE (u.proven_by IS NULL AND coalesce(p.person, proven.person) = proven.person)
            OR (u.proven_by = proven.person AND u.identity_subject <> proven.person)
        """,
        [key for _, keys in people for key in keys],
        [person for person, keys in people for _ in keys],
    )
    return {row[0] for row in rows}


async def migrate_wallets(
    connection: Connection, person: str, keys: Sequence[str], subject: str, wallet: Address
) -> list[MigratedUser]:
    """Move the addresses that the person has proven to the person's wallet, at brands' sites too.

    Addresses that another person proved first stay. One statement: of two people who prove an
    address at once, one gets it.
    """
    rows = await connection.fetch(_MIGRATE, list(keys), person, subject, wallet)
    return [
        MigratedUser(row["id"], Address(row["wallet"])) for row in rows if row["wallet"] != wallet
    ]


_MIGRATE = """
WITH proven AS MATERIALIZED (
  SELECT id, email_key, wallet
    FROM users u
   WHERE email_key = ANY($1::text[])
     AND ((proven_by IS NULL
           AND NOT EXISTS (SELECT FROM address_proofs p
                            WHERE p.email_key = u.email_key AND p.person <> $2))
          OR (proven_by = $2 AND (identity_subject <> $3 OR wallet <> $4)))
   ORDER BY email_key
     FOR UPDATE
), behind AS (
  INSERT INTO former_wallets (wallet, user_id)
  SELECT wallet, id FROM proven WHERE wallet <> $4
      ON CONFLICT DO NOTHING
), moved AS (
  DELETE FROM address_proofs p USING proven WHERE p.email_key = proven.email_key
), members AS (
  UPDATE site_members m
     SET wallet = $4
    FROM proven
   WHERE m.user_id = proven.id AND m.link_id IS NULL AND m.wallet <> $4
)
UPDATE users u
   SET wallet = $4, identity_subject = $3, proven_by = $2
  FROM proven
 WHERE u.id = proven.id
RETURNING u.id, proven.wallet
"""

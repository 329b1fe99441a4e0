"""Users whose wallet keys ltzd keeps, the names that lead to them, and the owners of several users.

A user has one wallet, which never changes. A *name* is an e-mail address or an account at an OAuth
provider, and leads to the user it was first given to. A *person* is a subject of the token issuer,
who owns the users that the person's tokens have vouched for. The *root* is the user that stands for
all users of a person. Two kinds of rows beside the names record this, and their primary key makes
each happen once:

    (subject, "ISSUER SUB") -> root     the login of the person with this root
    (owned, user)           -> root     the user's owner; the root owns itself

ltzd chooses the subjects of users. This module does not decide who may own what: see `link` in
`actions/users/custodial_wallets.py`.

A person's *home* is the oldest of the person's wallets that was pregenerated, since a pregenerated
answer never changes, or else the oldest of all. New names and new grants lead to the home.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

import asyncpg
import msgspec

from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount, OAuthProvider
from ltzd.store.database import Connection
from ltzd.values import Address

Kind: TypeAlias = Literal["email", "subject"] | OAuthProvider


@dataclass(frozen=True, slots=True)
class AccountName:
    kind: Kind
    text: str = field(repr=False)


class CustodialUser(msgspec.Struct, frozen=True):
    subject: str
    wallet: Address


@dataclass(frozen=True, slots=True)
class SealedUser:
    """A user with the sealed wallet key, which opens only with subject and wallet."""

    subject: str
    wallet: Address
    key_id: str
    sealed: bytes = field(repr=False)


class NameOwnership(msgspec.Struct, frozen=True):
    """The user that a name leads to, and the root that owns the user; None if there is none."""

    name: AccountName
    user: str | None
    owner: str | None


class ListedUser(msgspec.Struct, frozen=True):
    """`names` holds each name and whether a token has vouched for it; a root's names include its
    logins.
    """

    subject: str
    wallet: Address
    key_id: str
    created_at: datetime
    owner: str | None
    names: tuple[tuple[AccountName, bool], ...]


async def find(connection: Connection, name: AccountName) -> CustodialUser | None:
    """The user that receives what is given to the name: the home of its owner, or else the user
    that it leads to.
    """
    row = await connection.fetchrow(
        """
        SELECT u.subject, u.wallet
          FROM custodial_accounts a
          LEFT JOIN custodial_accounts mine ON mine.kind = 'owned' AND mine.name = a.subject
          LEFT JOIN custodial_accounts sibling
            ON sibling.kind = 'owned' AND sibling.subject = mine.subject
          JOIN custodial_users u ON u.subject = coalesce(sibling.name, a.subject)
         WHERE a.kind = $1 AND a.name = $2
         ORDER BY EXISTS (SELECT FROM pregenerations p WHERE p.wallet = u.wallet) DESC,
                  u.created_at, u.subject
         LIMIT 1
        """,
        name.kind,
        name.text,
    )
    return CustodialUser(*row) if row else None


async def create(connection: Connection, name: AccountName, new: SealedUser) -> bool:
    """Create a user for an unverified name; returns False, and changes nothing, if the name has a
    user.

    One statement, so that of concurrent callers one creates the user. A log-in that links the name
    at the same time ends first (`lock`): no event receives a wallet beside that log-in's.
    """
    made: bool | None = await connection.fetchval(
        """
        WITH first AS (
          INSERT INTO custodial_accounts (kind, name, subject, verified)
          SELECT $1, $2, $3, false FROM pg_advisory_xact_lock(hashtextextended($7, 0))
              ON CONFLICT (kind, name) DO NOTHING
          RETURNING subject
        )
        INSERT INTO custodial_users (subject, wallet, key_id, sealed)
        SELECT subject, $4::bytea, $5::text, $6::bytea FROM first
        RETURNING true
        """,
        name.kind,
        name.text,
        new.subject,
        new.wallet,
        new.key_id,
        new.sealed,
        _lock_text(name),
    )
    return bool(made)


async def find_root(connection: Connection, login: AccountName) -> str | None:
    """The root of the person with this login; returns None for a new person."""
    root: str | None = await connection.fetchval(
        "SELECT subject FROM custodial_accounts WHERE kind = 'subject' AND name = $1", login.text
    )
    return root


async def subjects_of_owners(connection: Connection, users: Sequence[str]) -> tuple[str, ...]:
    """The subjects by which issuers' tokens name the owners of these users."""
    rows = await connection.fetch(
        """
        SELECT DISTINCT login.name
          FROM custodial_accounts owned
          JOIN custodial_accounts login
            ON login.subject = owned.subject AND login.kind = 'subject'
         WHERE owned.kind = 'owned' AND owned.name = ANY($1::text[])
         ORDER BY login.name
        """,
        users,
    )
    return tuple(row["name"].partition(" ")[2] for row in rows)


async def wallets_of(connection: Connection, subject: str) -> tuple[Address, ...]:
    """The wallets of the user and of all users with the same owner, home first, then the oldest."""
    rows = await connection.fetch(
        """
        SELECT u.wallet
          FROM custodial_users u
         WHERE u.subject IN (
               SELECT $1
                UNION
               SELECT other.name
                 FROM custodial_accounts mine
                 JOIN custodial_accounts other
                   ON other.subject = mine.subject AND other.kind = 'owned'
                WHERE mine.kind = 'owned' AND mine.name = $1)
         ORDER BY EXISTS (SELECT FROM pregenerations p WHERE p.wallet = u.wallet) DESC,
                  u.created_at, u.subject
        """,
        subject,
    )
    return tuple(Address(row["wallet"]) for row in rows)


async def accounts_of(connection: Connection, subject: str) -> tuple[OAuthAccount, ...]:
    """The verified accounts at OAuth providers of the user and of all users with the same owner."""
    rows = await connection.fetch(
        """
        SELECT a.kind, a.name
          FROM custodial_accounts mine
          JOIN custodial_accounts other ON other.subject = mine.subject AND other.kind = 'owned'
          JOIN custodial_accounts a ON a.subject = other.name
         WHERE mine.kind = 'owned' AND mine.name = $1
           AND a.verified AND a.kind = ANY ($2::text[])
         ORDER BY a.kind, a.name
        """,
        subject,
        list(PROVIDERS),
    )
    return tuple(OAuthAccount(row["kind"], row["name"]) for row in rows)


async def emails_of(connection: Connection, root: str) -> tuple[str, ...]:
    """The addresses that the person's tokens have vouched for and that had no other owner."""
    rows = await connection.fetch(
        """
        SELECT a.name
          FROM custodial_accounts owned
          JOIN custodial_accounts a ON a.subject = owned.name
         WHERE owned.kind = 'owned' AND owned.subject = $1 AND a.kind = 'email' AND a.verified
         ORDER BY a.name
        """,
        root,
    )
    return tuple(row["name"] for row in rows)


async def read_sealed_user(connection: Connection, wallet: Address) -> SealedUser | None:
    row = await connection.fetchrow(
        "SELECT subject, wallet, key_id, sealed FROM custodial_users WHERE wallet = $1", wallet
    )
    return SealedUser(*row) if row else None


async def read_ownership(
    connection: Connection, names: Sequence[AccountName]
) -> list[NameOwnership]:
    """The ownership of each name, in the order of `names`."""
    rows = await connection.fetch(
        """
        SELECT a.subject AS user, owned.subject AS owner
          FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS given (kind, name, number)
          LEFT JOIN custodial_accounts a ON a.kind = given.kind AND a.name = given.name
          LEFT JOIN custodial_accounts owned ON owned.kind = 'owned' AND owned.name = a.subject
         ORDER BY given.number
        """,
        [name.kind for name in names],
        [name.text for name in names],
    )
    return [NameOwnership(name, *row) for name, row in zip(names, rows, strict=True)]


async def lock(connection: Connection, names: Sequence[AccountName]) -> None:
    """Serialise the creation and linking of users by these names until the transaction ends.

    Locks are taken in one order, so that no two callers deadlock.
    """
    await connection.execute(
        """
        SELECT pg_advisory_xact_lock(key)
          FROM (SELECT DISTINCT hashtextextended(text, 0) AS key
                  FROM unnest($1::text[]) AS text
                 ORDER BY key) AS locks
        """,
        [_lock_text(name) for name in names],
    )


def _lock_text(name: AccountName) -> str:
    return f"local name {name.kind} {name.text}"


async def create_person(connection: Connection, login: AccountName, new: SealedUser) -> None:
    """Create a user for a person whose login and names lead to no user."""
    await connection.execute(
        """
        INSERT INTO custodial_users (subject, wallet, key_id, sealed) VALUES ($1, $2, $3, $4)
        """,
        new.subject,
        new.wallet,
        new.key_id,
        new.sealed,
    )
    await set_owner(connection, new.subject, new.subject, login)
    await add_name(connection, login, new.subject)


async def set_owner(connection: Connection, user: str, root: str, proven: AccountName) -> bool:
    """Make the root the owner of the user, whose name a token has vouched for; False if it has an
    owner.
    """
    owned: bool | None = await connection.fetchval(
        """
        INSERT INTO custodial_accounts (kind, name, subject, verified)
        VALUES ('owned', $1, $2, true)
            ON CONFLICT (kind, name) DO NOTHING
        RETURNING true
        """,
        user,
        root,
    )
    if not owned:
        return False
    await connection.execute(
        """
        UPDATE custodial_accounts
           SET verified = true
         WHERE kind = $1 AND name = $2 AND subject = $3
        """,
        proven.kind,
        proven.text,
        user,
    )
    return True


async def add_name(connection: Connection, name: AccountName, user: str) -> bool:
    """Let a proven name lead to the user; returns False if it leads to a user already."""
    given: bool | None = await connection.fetchval(
        """
        INSERT INTO custodial_accounts (kind, name, subject, verified)
        VALUES ($1, $2, $3, true)
            ON CONFLICT (kind, name) DO NOTHING
        RETURNING true
        """,
        name.kind,
        name.text,
        user,
    )
    return bool(given)


async def read_home(connection: Connection, root: str) -> CustodialUser:
    """The home of the person with this root, to which new names lead."""
    row = await connection.fetchrow(
        """
        SELECT u.subject, u.wallet
          FROM custodial_accounts owned JOIN custodial_users u ON u.subject = owned.name
         WHERE owned.kind = 'owned' AND owned.subject = $1
         ORDER BY EXISTS (SELECT FROM pregenerations p WHERE p.wallet = u.wallet) DESC,
                  u.created_at, u.subject
         LIMIT 1
        """,
        root,
    )
    return CustodialUser(*row)


async def list_newest(connection: Connection, limit: int) -> list[ListedUser]:
    rows = await connection.fetch(
        """
        SELECT u.subject, u.wallet, u.key_id, u.created_at,
               (SELECT o.subject FROM custodial_accounts o
                 WHERE o.kind = 'owned' AND o.name = u.subject) AS owner,
               ARRAY(SELECT ROW(a.kind, a.name, a.verified)
                       FROM custodial_accounts a
                      WHERE a.subject = u.subject AND a.kind <> 'owned'
                      ORDER BY a.kind, a.name) AS names
          FROM custodial_users u
         ORDER BY u.created_at DESC, u.subject
         LIMIT $1
        """,
        limit,
    )
    return [_listed(row) for row in rows]


def _listed(row: asyncpg.Record) -> ListedUser:
    subject, wallet, key_id, created_at, owner, names = row
    vouched = tuple((AccountName(kind, text), proven) for kind, text, proven in names)
    return ListedUser(subject, Address(wallet), key_id, created_at, owner, vouched)


async def count(connection: Connection) -> int:
    number: int = await connection.fetchval("SELECT count(*) FROM custodial_users")
    return number

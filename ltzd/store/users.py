"""Users: one e-mail address, one wallet, across all brands."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from ltzd.store.database import Connection
from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class User:
    id: UUID
    email_key: str
    identity_subject: str
    wallet: Address


def email_key(email: str) -> str:
    """E-mail addresses are compared without regard to case (design.md 4, Events)."""
    return email.lower()


async def find(connection: Connection, key: str) -> User | None:
    row = await connection.fetchrow(
        "SELECT id, email_key, identity_subject, wallet FROM users WHERE email_key = $1", key
    )
    return User(*row) if row else None


async def insert(connection: Connection, those: Sequence[User]) -> dict[str, tuple[User, bool]]:
    """Insert users unless their e-mail address has one already.

    Answers by e-mail key who is there now, and whether this call made him. The rows stay locked.
    """
    ordered = sorted(those, key=lambda user: user.email_key)
    rows = await connection.fetch(
        """
        INSERT INTO users (id, email_key, identity_subject, wallet)
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[])
            ON CONFLICT (email_key) DO UPDATE SET email_key = excluded.email_key
     RETURNING id, email_key, identity_subject, wallet, xmax = 0 AS is_new
        """,
        [user.id for user in ordered],
        [user.email_key for user in ordered],
        [user.identity_subject for user in ordered],
        [user.wallet for user in ordered],
    )
    return {row["email_key"]: (User(*row[:4]), row["is_new"]) for row in rows}

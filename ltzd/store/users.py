"""Users: one e-mail address, one wallet, across all brands."""

from dataclasses import dataclass
from uuid import UUID, uuid5

from ltzd.store.database import Connection
from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class User:
    id: UUID
    email_key: str
    identity_subject: str
    wallet: Address


_NAMESPACE = UUID("1b9ad1a4-3c5e-4f0e-9c38-0d3a9b6f6a51")


def user_id(subject: str, key: str) -> UUID:
    """ltzd's stable id of a user: whoever meets him first, in any process, gives him the same."""
    return uuid5(_NAMESPACE, f"{subject} {key}")


def email_key(email: str) -> str:
    """E-mail addresses are compared without regard to case (design.md 4, Events)."""
    return email.lower()


async def find(connection: Connection, key: str) -> User | None:
    row = await connection.fetchrow(
        "SELECT id, email_key, identity_subject, wallet FROM users WHERE email_key = $1", key
    )
    return User(*row) if row else None

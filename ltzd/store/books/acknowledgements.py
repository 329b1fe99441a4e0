"""Differences between books and chain that a person has explained, for example after a restore.

`ltzd books` goes on listing them, with the reason, and no longer counts them as disagreements.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from ltzd.store.database import Connection


class Acknowledgement(msgspec.Struct, frozen=True):
    """`subject` is the id of the row in the output of `ltzd books`."""

    kind: str
    subject: str
    reason: str
    acknowledged_at: datetime


async def list_all(connection: Connection) -> list[Acknowledgement]:
    """All acknowledgements, the oldest first."""
    rows = await connection.fetch(
        "SELECT kind, subject, reason, acknowledged_at FROM books_acknowledgements ORDER BY id"
    )
    return [Acknowledgement(*row) for row in rows]


async def add(connection: Connection, kind: str, subjects: Sequence[str], reason: str) -> list[str]:
    """Acknowledge rows of a kind; returns those that were not acknowledged before."""
    rows = await connection.fetch(
        """
        INSERT INTO books_acknowledgements (kind, subject, reason)
        SELECT $1, subject, $3 FROM unnest($2::text[]) AS named (subject)
            ON CONFLICT (kind, subject) DO NOTHING
     RETURNING subject
        """,
        kind,
        list(subjects),
        reason,
    )
    return [row[0] for row in rows]


async def withdraw(
    connection: Connection, kind: str, subjects: Sequence[str] | None = None
) -> list[str]:
    """Count rows as disagreements again, all of the kind without `subjects`; returns which."""
    rows = await connection.fetch(
        """
        DELETE FROM books_acknowledgements
         WHERE kind = $1 AND ($2::text[] IS NULL OR subject = ANY($2))
     RETURNING subject
        """,
        kind,
        None if subjects is None else list(subjects),
    )
    return [row[0] for row in rows]

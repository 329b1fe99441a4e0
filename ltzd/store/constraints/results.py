"""Results of purchase constraints, valid until they expire or are invalidated.

    ticket = await begin(connection, key, subject, seconds)   # commits
    …evaluate, which may take seconds…
    await put(connection, key, ticket, outcome, seconds)      # False: invalidated meanwhile

An evaluation has a row before it reads anything. An invalidation during the evaluation deletes that
row, and the result is not kept. Expired rows have no effect and are deleted by `delete_expired`.
The chat platform does not report changes, so results of the chat kinds are evaluated again
(`list_in_force`) and deleted if they have changed (`delete`). Expiry goes by the database's time.
"""

from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID, uuid4

import msgspec

from ltzd.store.database import Connection
from ltzd.store.retention import batches
from ltzd.values import Address


class ResultKey(msgspec.Struct, frozen=True):
    """A wallet and one of a collection's constraints, by its place among them."""

    user: Address
    collection_id: int
    position: int


class ConstraintSubject(msgspec.Struct, frozen=True):
    """The constraint that a result belongs to.

    `api_url` is the template as configured, for external_api only. `fingerprint` covers all that
    the file says of the constraint; for the chat kinds it is the question itself.
    """

    brand: Address
    kind: str
    api_url: str | None = None
    fingerprint: bytes | None = None


class StoredResult(msgspec.Struct, frozen=True):
    """A result in force, and the question that it answers."""

    key: ResultKey
    ticket: UUID
    outcome: bool
    question: bytes


FIRST_KEY: Final = ResultKey(Address(b""), 0, 0)
"""Smaller than every key of a result."""


async def get(
    connection: Connection, user: Address, collection_id: int
) -> dict[int, tuple[ConstraintSubject, bool]]:
    """The results in force by the constraint's position, each with its constraint."""
    rows = await connection.fetch(
        """
        SELECT position, brand_id, kind, api_url, fingerprint, outcome
          FROM constraint_results
         WHERE user_address = $1 AND collection_id = $2
           AND outcome IS NOT NULL AND expires_at > now()
        """,
        user,
        collection_id,
    )
    return {row[0]: (ConstraintSubject(Address(row[1]), *row[2:5]), row[5]) for row in rows}


async def begin(
    connection: Connection, key: ResultKey, subject: ConstraintSubject, seconds: float
) -> UUID:
    """Insert an evaluation that ends within `seconds` and return its ticket. Commit before
    evaluating.

    Of several evaluations at once the last one that began is kept.
    """
    async with connection.transaction():
        # A block that is being written may have invalidated results and is not visible yet, so
        # wait for it. A block after it sees this row.
        await connection.execute("SELECT FROM chains FOR SHARE")
        ticket: UUID = await connection.fetchval(
            """
            INSERT INTO constraint_results (user_address, collection_id, position, brand_id, kind,
                                            api_url, ticket, expires_at, fingerprint)
            VALUES ($1, $2, $3, $4, $5, $6, $7, now() + make_interval(secs => $8), $9)
                ON CONFLICT (user_address, collection_id, position) DO UPDATE
               SET brand_id = excluded.brand_id, kind = excluded.kind,
                   api_url = excluded.api_url, fingerprint = excluded.fingerprint,
                   ticket = excluded.ticket,
                   outcome = NULL, evaluated_at = NULL, expires_at = excluded.expires_at
         RETURNING ticket
            """,
            key.user,
            key.collection_id,
            key.position,
            subject.brand,
            subject.kind,
            subject.api_url,
            uuid4(),
            seconds,
            subject.fingerprint,
        )
    return ticket


async def put(
    connection: Connection, key: ResultKey, ticket: UUID, outcome: bool, seconds: float
) -> bool:
    """Keep a result for `seconds`; returns False if it was invalidated or evaluated again
    meanwhile.
    """
    is_kept: bool | None = await connection.fetchval(
        """
        UPDATE constraint_results
           SET outcome = $5, evaluated_at = now(),
               expires_at = now() + make_interval(secs => $6)
         WHERE user_address = $1 AND collection_id = $2 AND position = $3 AND ticket = $4
     RETURNING true
        """,
        key.user,
        key.collection_id,
        key.position,
        ticket,
        outcome,
        seconds,
    )
    return bool(is_kept)


async def invalidate(connection: Connection, wallets: Collection[Address]) -> None:
    """Delete all results of these wallets, of every kind: an outside service may read the chain.

    Call it in the transaction that writes or undoes the blocks which touched the wallets.
    """
    if not wallets:
        return
    await connection.execute(
        "DELETE FROM constraint_results WHERE user_address = ANY($1::bytea[])", sorted(wallets)
    )


async def invalidate_api(
    connection: Connection,
    api_url: str,
    *,
    brand: Address | None = None,
    user: Address | None = None,
    collection_id: int | None = None,
) -> int:
    """Delete results of an external API, narrowed by the given arguments; returns how many were in
    force.
    """
    count: int = await connection.fetchval(
        """
        WITH gone AS (
          DELETE FROM constraint_results
           WHERE md5(api_url) = md5($1) AND api_url = $1
             AND ($2::bytea IS NULL OR brand_id = $2)
             AND ($3::bytea IS NULL OR user_address = $3)
             AND ($4::bigint IS NULL OR collection_id = $4)
       RETURNING outcome IS NOT NULL AND expires_at > now() AS was_in_force
        )
        SELECT count(*) FILTER (WHERE was_in_force) FROM gone
        """,
        api_url,
        brand,
        user,
        collection_id,
    )
    return count


async def list_in_force(
    connection: Connection, kinds: Collection[str], behind: ResultKey, most: int
) -> list[StoredResult]:
    """Results in force of kinds whose fingerprint is the question, in the order of their keys."""
    rows = await connection.fetch(
        """
        SELECT user_address, collection_id, position, ticket, outcome, fingerprint
          FROM constraint_results
         WHERE (user_address, collection_id, position) > ($2, $3, $4)
           AND kind = ANY($1::text[])
           AND outcome IS NOT NULL AND expires_at > now()
         ORDER BY user_address, collection_id, position
         LIMIT $5
        """,
        list(kinds),
        behind.user,
        behind.collection_id,
        behind.position,
        most,
    )
    return [StoredResult(ResultKey(Address(row[0]), row[1], row[2]), *row[3:]) for row in rows]


async def delete(connection: Connection, results: Sequence[StoredResult]) -> int:
    """Delete these results unless they were evaluated again meanwhile; returns how many were
    deleted.
    """
    count: int = await connection.fetchval(
        """
        WITH gone AS (
          DELETE FROM constraint_results r
           USING unnest($1::bytea[], $2::bigint[], $3::smallint[], $4::uuid[])
                 AS those (user_address, collection_id, position, ticket)
           WHERE (r.user_address, r.collection_id, r.position)
                 = (those.user_address, those.collection_id, those.position)
             AND r.ticket = those.ticket
       RETURNING 1
        )
        SELECT count(*) FROM gone
        """,
        [result.key.user for result in results],
        [result.key.collection_id for result in results],
        [result.key.position for result in results],
        [result.ticket for result in results],
    )
    return count


async def delete_expired(connection: Connection) -> None:
    await batches.run(
        connection,
        """
        DELETE FROM constraint_results
         WHERE (user_address, collection_id, position)
               IN (SELECT user_address, collection_id, position
                     FROM constraint_results
                    WHERE expires_at <= now()
                    ORDER BY expires_at
                    LIMIT $1
                      FOR UPDATE SKIP LOCKED)
        """,
    )

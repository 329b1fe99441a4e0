"""What purchase constraints said of wallets: true until it expires (the database's time) or is
forgotten before.

    ticket = await begin(connection, key, subject, seconds)   # commits
    …evaluate, which may take seconds…
    await put(connection, key, ticket, outcome, seconds)      # False: forgotten meanwhile

An evaluation has its row from before it looks at anything, so whatever invalidates results while it
is under way deletes that row, and what it found is then not kept. Expired rows mean nothing and go
with `forget_expired`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID, uuid4

from ltzd.store.database import Connection
from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class Key:
    """A wallet before one of a collection's constraints: which, by its place among them."""

    user: Address
    collection_id: int
    position: int


@dataclass(frozen=True, slots=True)
class Subject:
    """What the constraint is. `api_url` is the template as configured, for external_api only;
    `fingerprint` is of all that the file says of it."""

    brand: Address
    kind: str
    api_url: str | None = None
    fingerprint: bytes | None = None


async def get(
    connection: Connection, user: Address, collection_id: int
) -> dict[int, tuple[Subject, bool]]:
    """The results in force, by the constraint's position, with what they were results of."""
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
    return {row[0]: (Subject(Address(row[1]), *row[2:5]), row[5]) for row in rows}


async def begin(connection: Connection, key: Key, subject: Subject, seconds: float) -> UUID:
    """The ticket of an evaluation that ends within `seconds`. Commit before it begins.

    Of several at once the one that began last is kept.
    """
    async with connection.transaction():
        # A block that is being written has perhaps invalidated already, and is not to be seen yet:
        # wait for it. One that comes after this sees our row.
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
    connection: Connection, key: Key, ticket: UUID, outcome: bool, seconds: float
) -> bool:
    """Keep a result for `seconds`; False when it was invalidated, or begun anew, meanwhile."""
    kept: bool | None = await connection.fetchval(
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
    return bool(kept)


async def invalidate(connection: Connection, wallets: Collection[Address]) -> None:
    """Forget all results of these wallets, of every kind: an outside service may ask the chain.

    In the transaction that writes or undoes the blocks which touched them.
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
    """Forget results of an external API, narrowed by what is given; answers how many there were."""
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


async def invalidate_kinds(connection: Connection, kinds: Collection[str]) -> int:
    """Forget all results of these kinds; answers how many there were."""
    count: int = await connection.fetchval(
        """
        WITH gone AS (
          DELETE FROM constraint_results
           WHERE kind = ANY($1::text[])
       RETURNING outcome IS NOT NULL AND expires_at > now() AS was_in_force
        )
        SELECT count(*) FILTER (WHERE was_in_force) FROM gone
        """,
        list(kinds),
    )
    return count


async def forget_expired(connection: Connection) -> None:
    await connection.execute("DELETE FROM constraint_results WHERE expires_at <= now()")

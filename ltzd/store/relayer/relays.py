"""Relays: calls that users asked the operator to send, from their admission on.

A relay is decided on one version of its user's rows and inserted if the version is still the same:
the limits, the idempotency keys and the relay in flight are read from the rows alone. A write that
only loosens the limits, such as the end of a relay, leaves the version as it is.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC
from decimal import Decimal
from typing import Any, Final

import asyncpg
from msgspec.structs import replace

from ltzd.rules.operator.transactions import State
from ltzd.rules.relayer.admission import NewRelay
from ltzd.rules.relayer.calls import RelayProgress, RelayStatus, RequestedClaim
from ltzd.rules.relayer.limits import WINDOW, EarlierRelay, RelayUsage
from ltzd.rules.relayer.states import status_of
from ltzd.store.database import Connection
from ltzd.store.relayer import gas_budgets
from ltzd.store.relayer.gas_budgets import GasChange
from ltzd.store.retention import batches
from ltzd.store.wakeups import origin
from ltzd.values import Address, Hash32

LAPSE: Final = "interval '10 minutes'"
"""A relay that was queued for so long has lapsed, and no lane claims it: its simulation is too old,
and its caller has stopped waiting."""


async def lock_users(connection: Connection, users: Sequence[Address]) -> None:
    """Keep other writers of these users' relays out until the transaction ends.

    A relay that was decided before is decided again. The rows are locked in one order.
    """
    await connection.execute(
        """
        INSERT INTO relay_users AS u (user_address, version)
        SELECT DISTINCT wallet, 1
          FROM unnest($1::bytea[]) AS given (wallet)
         ORDER BY wallet
            ON CONFLICT (user_address) DO UPDATE SET version = u.version + 1
        """,
        users,
    )


async def read_usage(
    connection: Connection,
    queries: Sequence[tuple[Address, str | None]],
    digests: Sequence[bytes | None] = (),
) -> list[RelayUsage]:
    """The usage of each user, with the relay of the given idempotency key, in order.

    `digests` name a call of each query, for `RelayUsage.was_relayed`.
    """
    rows = await connection.fetch(
        """
        SELECT now() AS at, w.window_start, coalesce(w.used, 0) AS used, e.id, e.fingerprint,
               o.has_serialized_in_flight, o.collections, o.expected, o.ids, o.digests, o.senders,
               l.last_serialized_id, l.was_relayed, coalesce(u.version, 0) AS version
          FROM unnest($1::bytea[], $2::text[], $4::bytea[])
               WITH ORDINALITY AS query (user_address, key, digest, n)
          LEFT JOIN relay_users u ON u.user_address = query.user_address
          LEFT JOIN LATERAL (
               SELECT window_start, count(*) AS used
                 FROM relays r
                WHERE r.user_address = query.user_address AND window_start > now() - $3::interval
                GROUP BY window_start
                ORDER BY window_start DESC
                LIMIT 1) AS w ON true
          LEFT JOIN relays e
            ON e.user_address = query.user_address AND e.idempotency_key = query.key
         CROSS JOIN LATERAL (
               SELECT coalesce(bool_or(serialized_per_user), false) AS has_serialized_in_flight,
                      array_agg(collection_id) FILTER (WHERE collection_id IS NOT NULL)
                        AS collections,
                      array_agg(expected_claims) FILTER (WHERE collection_id IS NOT NULL)
                        AS expected,
                      array_agg(id ORDER BY id DESC) FILTER (WHERE brand_id IS NULL) AS ids,
                      array_agg(sha256(to_address || data) ORDER BY id DESC)
                        FILTER (WHERE brand_id IS NULL) AS digests,
                      array_agg(DISTINCT CASE state WHEN 'sent' THEN claimed_by END)
                        FILTER (WHERE brand_id IS NULL) AS senders
                 FROM relays r
                WHERE r.user_address = query.user_address AND r.state IN ('queued', 'sent')) AS o
         CROSS JOIN LATERAL (
               SELECT max(id) FILTER (WHERE serialized_per_user) AS last_serialized_id,
                      coalesce(bool_or(CASE WHEN query.digest IS NOT NULL AND state = 'mined'
                                            THEN sha256(to_address || data) = query.digest END),
                               false) AS was_relayed
                 FROM relays r
                WHERE r.user_address = query.user_address
                  AND window_start > now() - 2 * $3::interval) AS l
         ORDER BY query.n
        """,
        [user for user, _ in queries],
        [key for _, key in queries],
        WINDOW,
        list(digests),
    )
    return list(map(_usage, rows))


def _usage(row: asyncpg.Record) -> RelayUsage:
    claims = zip(row["collections"] or (), row["expected"] or (), strict=True)
    return RelayUsage(
        now=row["at"].astimezone(UTC),
        window_start=row["window_start"],
        used=row["used"],
        earlier=None if row["id"] is None else EarlierRelay(row["id"], row["fingerprint"]),
        has_serialized_in_flight=row["has_serialized_in_flight"],
        last_serialized_id=row["last_serialized_id"],
        claims=[RequestedClaim(int(collection), int(expected)) for collection, expected in claims],
        # Newest first, so that the oldest of equal calls stays.
        calls_in_flight=dict(zip(row["digests"] or (), row["ids"] or (), strict=True)),
        senders=frozenset(row["senders"] or ()),
        version=row["version"],
        was_relayed=row["was_relayed"],
    )


NEW_RELAYS = """
unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::text[], $5::bytea[], $6::boolean[],
       $7::numeric[], $8::numeric[], $9::text[], $10::bytea[], $11::bigint[], $12::numeric[],
       $13::timestamptz[], $14::text[], $15::text[], $16::bigint[])
  WITH ORDINALITY
    AS new (user_address, to_address, data, function, wallet, serialized_per_user,
            collection_id, expected_claims, idempotency_key, fingerprint, gas_limit, max_cost_wei,
            window_start, failure, identity, version, n)
"""
"""The rows of `columns_of`."""

CLAIM_VERSIONS = """
INSERT INTO relay_users AS u (user_address, version)
SELECT user_address, max(version) + 1
  FROM new
 GROUP BY user_address
 ORDER BY user_address
    ON CONFLICT (user_address) DO UPDATE SET version = u.version + 1
     WHERE u.version + 1 = excluded.version
RETURNING user_address
"""
"""Returns the users for whom nothing was written since the version that a relay was decided on."""


def columns_of(relays: Sequence[NewRelay]) -> list[list[Any]]:
    """The arguments of `NEW_RELAYS`."""
    plans = [relay.plan for relay in relays]
    claims = [plan.claim for plan in plans]
    return [
        [plan.user for plan in plans],
        [plan.to for plan in plans],
        [plan.data for plan in plans],
        [plan.function for plan in plans],
        [plan.wallet for plan in plans],
        [plan.serialized_per_user for plan in plans],
        [claim and Decimal(claim.collection_id) for claim in claims],
        [claim and Decimal(claim.expected_claims) for claim in claims],
        [relay.idempotency_key for relay in relays],
        [relay.fingerprint for relay in relays],
        [relay.gas_limit for relay in relays],
        [Decimal(relay.max_cost_wei) for relay in relays],
        [relay.window_start for relay in relays],
        [relay.failure for relay in relays],
        [relay.identity for relay in relays],
        [relay.version for relay in relays],
    ]


async def insert(connection: Connection, relays: Sequence[NewRelay]) -> list[int | None]:
    """Insert relays and return their ids; the caller then announces them to the lanes.

    Returns None for a relay that must be decided again: something was written for its user since
    the version that it was decided on.
    """
    rows = await connection.fetch(_INSERT, *columns_of(relays))
    ids: dict[int, int] = {row["n"]: row["id"] for row in rows}
    return [ids.get(n) for n in range(1, len(relays) + 1)]


_INSERT = f"""
WITH new AS MATERIALIZED (
  SELECT new.*, nextval('relays_id_seq') AS id FROM {NEW_RELAYS}
), current AS (
{CLAIM_VERSIONS}
), lost AS (
  SELECT n FROM new WHERE user_address NOT IN (SELECT user_address FROM current)
), decided AS MATERIALIZED (
  SELECT *, CASE WHEN failure IS NULL THEN 'queued' ELSE 'failed' END AS state
    FROM new
   WHERE n NOT IN (SELECT n FROM lost)
), written AS (
  INSERT INTO relays (id, user_address, to_address, data, function, wallet, serialized_per_user,
                      collection_id, expected_claims, idempotency_key, fingerprint,
                      gas_limit, max_cost_wei, window_start, failure, identity, state,
                      gas_day, gas_wei)
  OVERRIDING SYSTEM VALUE
  SELECT id, user_address, to_address, data, function, wallet, serialized_per_user,
         collection_id, expected_claims, idempotency_key, fingerprint,
         gas_limit, max_cost_wei, window_start, failure, identity, state,
         CASE WHEN failure IS NULL THEN (now() AT TIME ZONE 'UTC')::date END,
         CASE WHEN failure IS NULL THEN max_cost_wei END
    FROM decided
), changes AS (
  SELECT (now() AT TIME ZONE 'UTC')::date AS day, identity, max_cost_wei AS wei
    FROM decided
   WHERE failure IS NULL
), counted AS (
{gas_budgets.ADD_CHANGES}
)
SELECT n, id FROM decided
"""  # noqa: S608 - only constants


def _gas_changes(rows: Sequence[asyncpg.Record]) -> list[GasChange]:
    return [
        GasChange(row["gas_day"], row["identity"], int(row["gas_wei"]))
        for row in rows
        if row["gas_day"] is not None
    ]


async def follow(connection: Connection, transaction_ids: Sequence[int]) -> bool:
    """Move relays with their transactions, in the database transaction that moves these.

    Returns whether later relays of the same users are queued, which another lane may take now; the
    other processes' lanes are woken for them.

    A relay is mined as long as no reorg undoes its block. A relay whose nonce another transaction
    used, or whose self-transfer is final, will never be mined, and blocks its user's next relay no
    longer. Its gas counts as the actual cost once it is known, as nothing if another transaction
    used the nonce, and as the maximum cost again after a reorg.
    """
    rows = await connection.fetch(
        f"""
        WITH moved AS MATERIALIZED (
          SELECT r.id, r.user_address, r.gas_wei AS counted_wei,
                 CASE WHEN t.state IN ('signed', 'published')
                        OR t.state = 'mined' AND t.is_cancelled THEN 'sent'
                      ELSE 'mined' END AS state,
                 CASE WHEN r.gas_day IS NULL THEN NULL
                      WHEN t.state = 'displaced' THEN 0
                      ELSE coalesce(t.gas_used::numeric * t.effective_gas_price + t.l1_fee_wei,
                                    r.max_cost_wei)
                 END AS wei
            FROM relays r
            JOIN transactions t ON t.id = r.transaction_id
           WHERE t.id = ANY($1::bigint[])
           ORDER BY r.id
             FOR UPDATE OF r
        ), changes AS (
          UPDATE relays r
             SET state = moved.state, gas_wei = moved.wei
            FROM moved
           WHERE r.id = moved.id
       RETURNING r.gas_day AS day, r.identity, moved.wei - moved.counted_wei AS wei
        ), counted AS (
        {gas_budgets.ADD_CHANGES}
        ), follower AS MATERIALIZED (
          SELECT EXISTS (SELECT FROM moved
                           JOIN relays later USING (user_address)
                          WHERE later.state = 'queued' AND later.id > moved.id) AS is_queued
        )
        SELECT is_queued, pg_notify('ltzd_relayed', $2),
               CASE WHEN is_queued THEN pg_notify('ltzd_relays', $2) END
          FROM follower
        """,  # noqa: S608 - only constants
        transaction_ids,
        origin(),
    )
    return any(row["is_queued"] for row in rows)


async def bound_to(connection: Connection, wallet: Address) -> list[int]:
    """The queued relays whose call names this relay wallet, so that no other may send them."""
    rows = await connection.fetch(
        "SELECT id FROM relays WHERE state = 'queued' AND wallet = $1", wallet
    )
    return [row[0] for row in rows]


async def refuse(connection: Connection, failures: Mapping[int, str]) -> None:
    """Fail queued relays that may not be signed, for these reasons; nothing was spent on them."""
    rows = await connection.fetch(
        """
        WITH refused AS MATERIALIZED (
          SELECT r.id, r.gas_wei, given.reason
            FROM relays r
            JOIN unnest($1::bigint[], $2::text[]) AS given (id, reason) USING (id)
           WHERE r.state = 'queued'
           ORDER BY r.id
             FOR UPDATE OF r
        ), written AS (
          UPDATE relays r
             SET state = 'failed', failure = refused.reason, window_start = NULL,
                 gas_wei = CASE WHEN r.gas_day IS NOT NULL THEN 0 END
            FROM refused
           WHERE r.id = refused.id
       RETURNING r.gas_day, r.identity, -refused.gas_wei AS gas_wei
        )
        SELECT gas_day, identity, gas_wei
          FROM written
         RIGHT JOIN (SELECT pg_notify('ltzd_relayed', $3), pg_notify('ltzd_relays', $3)) AS notified
            ON true
        """,
        list(failures),
        list(failures.values()),
        origin(),
    )
    await gas_budgets.count(connection, _gas_changes(rows))


async def withdraw(connection: Connection, relay: int, dependents: Sequence[int] = ()) -> bool:
    """Delete a relay that no lane has signed; returns False if one has, since the relay will be
    sent.

    The queued ones of its `dependents`, which would fail without it, are deleted with it. A relay
    that a lane has claimed can be withdrawn until its transaction is stored. Wakes the other
    processes' lanes: later relays of the user may have waited for this one.
    """
    async with connection.transaction():
        rows = await connection.fetch(
            """
            WITH queued AS MATERIALIZED (
              SELECT id
                FROM relays
               WHERE id = ANY($1::bigint[]) AND state = 'queued'
               ORDER BY id
                 FOR UPDATE
            ), deleted AS (
              DELETE FROM relays
               WHERE id IN (SELECT id FROM queued) AND $2 IN (SELECT id FROM queued)
           RETURNING gas_day, identity, -gas_wei AS gas_wei
            )
            SELECT gas_day, identity, gas_wei, pg_notify('ltzd_relays', $3) FROM deleted
            """,
            [relay, *dependents],
            relay,
            origin(),
        )
        await gas_budgets.count(connection, _gas_changes(rows))
    return bool(rows)


async def users_with_serialized(connection: Connection, users: Sequence[Address]) -> set[Address]:
    """Return the users among these who have a serialized relay in flight."""
    rows = await connection.fetch(
        """
        SELECT DISTINCT user_address
          FROM relays
         WHERE user_address = ANY($1::bytea[]) AND state IN ('queued', 'sent')
           AND serialized_per_user
        """,
        users,
    )
    return {Address(row[0]) for row in rows}


async def progress(connection: Connection, ids: Sequence[int]) -> dict[int, RelayProgress]:
    """The progress of these relays; a withdrawn relay is missing."""
    rows = await connection.fetch("SELECT * FROM relay_progress WHERE id = ANY($1::bigint[])", ids)
    return {row["id"]: _progress(row) for row in rows}


async def settled(connection: Connection, ids: Sequence[int]) -> dict[int, RelayProgress]:
    """The progress of those relays that are mined, or never will be."""
    rows = await connection.fetch(
        """
        SELECT * FROM relay_progress
         WHERE id = ANY($1::bigint[]) AND relay_state IN ('mined', 'failed')
        """,
        ids,
    )
    return {row["id"]: _progress(row) for row in rows}


async def withdrawn(connection: Connection, ids: Sequence[int]) -> set[int]:
    """The relays of `ids`, which names each once, that are not stored any more."""
    # Counting takes a quarter of the time of looking for each, and nearly always none is missing.
    stored = "FROM relays WHERE id = ANY($1::bigint[])"
    if await connection.fetchval(f"SELECT count(*) {stored}", ids) == len(ids):
        return set()
    return set(ids) - {row["id"] for row in await connection.fetch(f"SELECT id {stored}", ids)}


async def by_hash(
    connection: Connection, transaction_hash: Hash32, users: Sequence[Address]
) -> RelayProgress | None:
    """The relay of one of these users that has an attempt with this hash."""
    row = await connection.fetchrow(
        """
        SELECT * FROM relay_progress
         WHERE transaction_id = (SELECT transaction_id FROM attempts WHERE hash = $1)
           AND user_address = ANY($2::bytea[])
        """,
        transaction_hash,
        users,
    )
    return None if row is None else _progress(row)


async def kept_failures(connection: Connection, user: Address) -> tuple[int, float]:
    """How many failed calls of the user are kept, and the seconds until the first expires."""
    row = await connection.fetchrow(
        """
        SELECT count(*),
               coalesce(extract(epoch FROM min(created_at) + interval '24 hours' - now()),
                        0)::float8
          FROM relays
         WHERE user_address = $1 AND idempotency_key IS NOT NULL AND state = 'failed'
        """,
        user,
    )
    assert row is not None
    return row[0], row[1]


async def delete_expired(connection: Connection) -> None:
    """Delete lapsed relays, and delete or clear idempotency keys after a day."""
    while await _delete_lapsed(connection) == batches.ROWS:
        pass
    for change, condition in (
        ("DELETE FROM relays", "AND state = 'failed'"),
        ("UPDATE relays SET idempotency_key = NULL", ""),
    ):
        await batches.run(
            connection,
            f"""
            {change}
             WHERE id IN (SELECT id
                            FROM relays
                           WHERE idempotency_key IS NOT NULL
                             AND created_at < now() - interval '24 hours'
                             {condition}
                           ORDER BY created_at
                           LIMIT $1
                             FOR UPDATE SKIP LOCKED)
            """,  # noqa: S608 - only constants
        )


async def _delete_lapsed(connection: Connection) -> int:
    """Delete lapsed relays, up to a batch of them; returns how many."""
    async with connection.transaction():
        rows = await connection.fetch(
            f"""
            DELETE FROM relays
             WHERE id IN (SELECT id
                            FROM relays
                           WHERE state = 'queued' AND created_at < now() - {LAPSE}
                           ORDER BY id
                           LIMIT $1
                             FOR UPDATE SKIP LOCKED)
         RETURNING gas_day, identity, -gas_wei AS gas_wei
            """,  # noqa: S608
            batches.ROWS,
        )
        await gas_budgets.count(connection, _gas_changes(rows))
    return len(rows)


def _progress(row: asyncpg.Record) -> RelayProgress:
    relay = RelayProgress(
        id=row["id"],
        user=Address(row["user_address"]),
        to=Address(row["to_address"]),
        data=row["data"],
        status=RelayStatus.PENDING if row["failure"] is None else RelayStatus.FAILED,
        reason=row["failure"],
    )
    if row["hash"] is None:
        return relay
    status = status_of(State(row["state"]), row["succeeded"], is_cancelled=row["is_cancelled"])
    relay = replace(
        relay,
        status=status,
        transaction_hash=Hash32(row["hash"]),
        sender=Address(row["wallet"]),
        is_cancelled=row["is_cancelled"],
    )
    if status is RelayStatus.PENDING:
        # The cost of a self-transfer is shown together with the failure that it means.
        return relay
    return replace(
        relay,
        block_number=row["block_number"],
        gas_used=row["gas_used"],
        effective_gas_price=row["effective_gas_price"],
    )

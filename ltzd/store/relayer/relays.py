"""Relays: calls that users asked the operator to send, from their admission on.

A user's relays are inserted under the user's lock: the limits, the idempotency keys and the relay
in flight are read from the rows alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from decimal import Decimal

import asyncpg

from ltzd.rules.operator.transactions import State
from ltzd.rules.relayer.admission import NewRelay
from ltzd.rules.relayer.calls import RelayProgress, RelayStatus, RequestedClaim
from ltzd.rules.relayer.limits import WINDOW, EarlierRelay, RelayUsage
from ltzd.rules.relayer.states import status_of
from ltzd.store.database import Connection
from ltzd.store.relayer import gas_budgets
from ltzd.store.relayer.gas_budgets import GasChange
from ltzd.store.wakeups import ORIGIN
from ltzd.values import Address, Hash32


async def lock_users(connection: Connection, users: Sequence[Address]) -> None:
    """Serialise the writers of these users' relays until the transaction ends; in one order."""
    await connection.execute(
        """
        SELECT pg_advisory_xact_lock(hashtextextended('relays of ' || encode(wallet, 'hex'), 0))
          FROM (SELECT DISTINCT wallet FROM unnest($1::bytea[]) AS given (wallet)
                 ORDER BY wallet) AS ordered
        """,
        users,
    )


async def read_usage(
    connection: Connection, queries: Sequence[tuple[Address, str | None, bytes | None]]
) -> list[RelayUsage]:
    """The usage of each user, with the relays of the given key and of the given digest of a call,
    in order.
    """
    rows = await connection.fetch(
        """
        SELECT now() AS at, w.window_start, coalesce(w.used, 0) AS used, e.id, e.fingerprint,
               o.has_serialized_in_flight, o.collections, o.expected, o.duplicate_id,
               l.last_serialized_id
          FROM unnest($1::bytea[], $2::text[], $4::bytea[])
               WITH ORDINALITY AS query (user_address, key, digest, n)
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
                      min(id) FILTER (WHERE sha256(to_address || data) = query.digest)
                        AS duplicate_id,
                      array_agg(expected_claims) FILTER (WHERE collection_id IS NOT NULL)
                        AS expected
                 FROM relays r
                WHERE r.user_address = query.user_address AND r.state IN ('queued', 'sent')) AS o
         CROSS JOIN LATERAL (
               SELECT max(id) AS last_serialized_id
                 FROM relays r
                WHERE r.user_address = query.user_address AND r.serialized_per_user
                  AND window_start > now() - 2 * $3::interval) AS l
         ORDER BY query.n
        """,
        [user for user, _, _ in queries],
        [key for _, key, _ in queries],
        WINDOW,
        [digest for _, _, digest in queries],
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
        duplicate_id=row["duplicate_id"],
    )


async def insert(connection: Connection, relays: Sequence[NewRelay]) -> list[int]:
    """Insert relays of locked users and return their ids; queued relays wake the lanes."""
    plans = [relay.plan for relay in relays]
    claims = [plan.claim for plan in plans]
    rows = await connection.fetch(
        """
        WITH written AS (
          INSERT INTO relays (user_address, to_address, data, function, wallet, serialized_per_user,
                              collection_id, expected_claims, idempotency_key, fingerprint,
                              gas_limit, max_cost_wei, window_start, failure, identity, state,
                              gas_day, gas_wei)
          SELECT *, CASE WHEN failure IS NULL THEN 'queued' ELSE 'failed' END,
                 CASE WHEN failure IS NULL THEN (now() AT TIME ZONE 'UTC')::date END,
                 CASE WHEN failure IS NULL THEN max_cost_wei END
            FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::text[], $5::bytea[],
                        $6::boolean[], $7::numeric[], $8::numeric[], $9::text[], $10::bytea[],
                        $11::bigint[], $12::numeric[], $13::timestamptz[], $14::text[],
                        $16::text[])
                 AS new (user_address, to_address, data, function, wallet, serialized_per_user,
                         collection_id, expected_claims, idempotency_key, fingerprint,
                         gas_limit, max_cost_wei, window_start, failure, identity)
       RETURNING id, gas_day, identity, gas_wei
        )
        SELECT id, gas_day, identity, gas_wei, pg_notify('ltzd_relays', $15)
          FROM written
         ORDER BY id
        """,
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
        ORIGIN,
        [relay.identity for relay in relays],
    )
    await gas_budgets.count(connection, _gas_changes(rows))
    return [row["id"] for row in rows]


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
        """
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
        ), written AS (
          UPDATE relays r
             SET state = moved.state, gas_wei = moved.wei
            FROM moved
           WHERE r.id = moved.id
       RETURNING r.gas_day, r.identity, moved.wei - moved.counted_wei AS gas_wei
        ), follower AS MATERIALIZED (
          SELECT EXISTS (SELECT FROM moved
                           JOIN relays later USING (user_address)
                          WHERE later.state = 'queued' AND later.id > moved.id) AS is_queued
        )
        SELECT gas_day, identity, gas_wei, is_queued
          FROM written
         RIGHT JOIN (SELECT is_queued, pg_notify('ltzd_relayed', $2),
                            CASE WHEN is_queued THEN pg_notify('ltzd_relays', $2) END
                       FROM follower) AS notified ON true
        """,
        transaction_ids,
        ORIGIN,
    )
    await gas_budgets.count(connection, _gas_changes(rows))
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
        ORIGIN,
    )
    await gas_budgets.count(connection, _gas_changes(rows))


async def withdraw(connection: Connection, relay: int) -> bool:
    """Delete a relay that no lane has signed; returns False if one has, since the relay will be
    sent.

    A relay that a lane has claimed can be withdrawn until its transaction is stored. Wakes the
    other processes' lanes: later relays of the user may have waited for this one.
    """
    async with connection.transaction():
        rows = await connection.fetch(
            """
            WITH deleted AS (
              DELETE FROM relays
               WHERE id = $1 AND state = 'queued'
           RETURNING gas_day, identity, -gas_wei AS gas_wei
            )
            SELECT gas_day, identity, gas_wei, pg_notify('ltzd_relays', $2) FROM deleted
            """,
            relay,
            ORIGIN,
        )
        await gas_budgets.count(connection, _gas_changes(rows))
    return bool(rows)


async def users_with_serialized(connection: Connection, users: Sequence[Address]) -> set[Address]:
    """Return those of the users who have a serialized relay in flight."""
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


async def delete_expired(connection: Connection) -> None:
    """Delete lapsed relays, and delete or clear idempotency keys after a day."""
    async with connection.transaction():
        rows = await connection.fetch(
            """
            DELETE FROM relays
             WHERE state = 'queued' AND created_at < now() - interval '10 minutes'
         RETURNING gas_day, identity, -gas_wei AS gas_wei
            """
        )
        await gas_budgets.count(connection, _gas_changes(rows))
    await connection.execute(
        """
        DELETE FROM relays
         WHERE idempotency_key IS NOT NULL AND created_at < now() - interval '24 hours'
           AND state = 'failed'
        """
    )
    await connection.execute(
        """
        UPDATE relays SET idempotency_key = NULL
         WHERE idempotency_key IS NOT NULL AND created_at < now() - interval '24 hours'
        """
    )


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

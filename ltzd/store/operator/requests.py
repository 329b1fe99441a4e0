"""People's requests for transactions in flight: another, dearer attempt, or a self-transfer.

A command writes a request, and the lane that holds the wallet carries it out. The lane writes the
outcome in the database transaction that stores the attempt's bytes: a crash leaves both or neither,
so that no request is carried out twice. A request that has expired or is withdrawn is carried out
by no lane, however late a frozen process wakes up.
"""

from collections.abc import Sequence
from datetime import datetime

import asyncpg
import msgspec

from ltzd.errors import LaneLost
from ltzd.rules.operator.requests import Action, RequestOutcome
from ltzd.store.database import Connection
from ltzd.store.operator.lanes import Lane
from ltzd.store.wakeups import WALLETS, notify
from ltzd.values import Hash32


class TransactionRequest(msgspec.Struct, frozen=True):
    """`attempt` is the hash of the attempt that carried it out, None without such an attempt."""

    id: int
    transaction_id: int
    action: Action
    requested_at: datetime
    expires_at: datetime | None
    handled_at: datetime | None
    outcome: RequestOutcome | None
    attempt: Hash32 | None


class OpenRequest(msgspec.Struct, frozen=True):
    """A request for a lane to carry out; an expired one only needs its outcome."""

    id: int
    transaction_id: int
    action: Action
    is_expired: bool


async def ask(
    connection: Connection,
    transaction_id: int,
    action: Action,
    *,
    expires_in_seconds: float | None,
    joins_seconds: float = 0.0,
) -> tuple[TransactionRequest, bool]:
    """Write a request and wake the lanes; returns it, and whether it is new.

    Joins an open request of the same action, which then expires at the later of the two times, or a
    request that was carried out within the last `joins_seconds`: a repeated command does nothing
    twice. `expires_in_seconds` is None for a request that never expires. Call it in a
    database transaction.
    """
    # Commands for one transaction wait for each other; its lane does not wait for them.
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('ltzd transaction request', $1))",
        transaction_id,
    )
    await connection.execute(
        """
        UPDATE transaction_requests
           SET handled_at = now(), outcome = 'expired'
         WHERE transaction_id = $1 AND handled_at IS NULL AND expires_at <= now()
        """,
        transaction_id,
    )
    joined = await connection.fetchrow(
        """
        UPDATE transaction_requests
           SET expires_at = CASE WHEN handled_at IS NOT NULL THEN expires_at
                                 WHEN expires_at IS NULL OR $3::float8 IS NULL THEN NULL
                                 ELSE greatest(expires_at, now() + make_interval(secs => $3)) END
         WHERE id = (SELECT id
                       FROM transaction_requests
                      WHERE transaction_id = $1 AND action = $2
                        AND (handled_at IS NULL
                             OR outcome = 'done' AND handled_at > now() - make_interval(secs => $4))
                      ORDER BY id DESC
                      LIMIT 1)
     RETURNING *
        """,
        transaction_id,
        action.value,
        expires_in_seconds,
        joins_seconds,
    )
    if joined is not None:
        return _request(joined), False
    row = await connection.fetchrow(
        """
        INSERT INTO transaction_requests (transaction_id, action, expires_at)
        VALUES ($1, $2, now() + make_interval(secs => $3))
     RETURNING *
        """,
        transaction_id,
        action.value,
        expires_in_seconds,
    )
    await notify(connection, WALLETS)
    return _request(row), True


async def find(connection: Connection, request: int) -> TransactionRequest | None:
    row = await connection.fetchrow("SELECT * FROM transaction_requests WHERE id = $1", request)
    return None if row is None else _request(row)


async def withdraw(connection: Connection, request: int) -> bool:
    """Close an open request; returns False if it has an outcome by now."""
    is_withdrawn: bool | None = await connection.fetchval(
        """
        UPDATE transaction_requests
           SET handled_at = now(), outcome = 'withdrawn'
         WHERE id = $1 AND handled_at IS NULL
     RETURNING true
        """,
        request,
    )
    return bool(is_withdrawn)


async def of_transaction(connection: Connection, transaction_id: int) -> list[TransactionRequest]:
    """All requests for a transaction, the oldest first."""
    rows = await connection.fetch(
        "SELECT * FROM transaction_requests WHERE transaction_id = $1 ORDER BY id", transaction_id
    )
    return list(map(_request, rows))


# For lanes
#
# Subqueries instead of joins: a join may begin with all transactions that the wallet ever signed.


async def open_requests(connection: Connection, lane: Lane, limit: int) -> list[OpenRequest]:
    """The oldest requests for the lane to carry out."""
    rows = await connection.fetch(
        """
        SELECT q.id, q.transaction_id, q.action, coalesce(q.expires_at <= now(), false)
          FROM transaction_requests q
         WHERE q.handled_at IS NULL
           AND (SELECT t.chain_id = $1 AND t.wallet = $2
                  FROM transactions t
                 WHERE t.id = q.transaction_id)
         ORDER BY q.id
         LIMIT $3
        """,
        lane.chain_id,
        lane.wallet,
        limit,
    )
    return [OpenRequest(row[0], row[1], Action(row[2]), row[3]) for row in rows]


async def carry_out(connection: Connection, request: int, attempt: Hash32) -> bool:
    """Record that this attempt carries the request out, in the transaction that stores it.

    Returns False, and changes nothing, if the request has expired, is withdrawn or has an outcome:
    the caller then stores no attempt.
    """
    is_open: bool | None = await connection.fetchval(
        """
        UPDATE transaction_requests
           SET handled_at = now(), outcome = 'done', attempt = $2
         WHERE id = $1 AND handled_at IS NULL AND coalesce(expires_at > clock_timestamp(), true)
     RETURNING true
        """,
        request,
        attempt,
    )
    return bool(is_open)


async def refuse(
    connection: Connection, lane: Lane, refused: Sequence[tuple[int, RequestOutcome]]
) -> None:
    """Write why requests are not carried out; requests with an outcome keep it.

    Raises LaneLost if the lane's term is over: another process decides then.
    """
    is_held = await connection.fetchval(
        """
        WITH held AS (
          SELECT FROM lanes WHERE chain_id = $1 AND wallet = $2 AND epoch = $3 FOR SHARE
        ), refused AS (
          UPDATE transaction_requests q
             SET handled_at = now(), outcome = new.outcome
            FROM unnest($4::bigint[], $5::text[]) AS new (id, outcome)
           WHERE q.id = new.id AND q.handled_at IS NULL AND EXISTS (SELECT FROM held)
        )
        SELECT EXISTS (SELECT FROM held)
        """,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        [request for request, _ in refused],
        [outcome.value for _, outcome in refused],
    )
    if not is_held:
        raise LaneLost("The term is over, so another process decides about requests")


async def is_cancelled_by_hand(connection: Connection, transaction_id: int) -> bool:
    """Whether a person's request made the self-transfer of this transaction."""
    is_by_hand: bool = await connection.fetchval(
        """
        SELECT EXISTS (SELECT FROM transaction_requests
                        WHERE transaction_id = $1 AND action = 'cancel' AND outcome = 'done')
        """,
        transaction_id,
    )
    return is_by_hand


async def is_relay_cancelled_by_hand(connection: Connection, relay: int) -> bool:
    """Whether a person's request made the self-transfer of this relay's transaction."""
    is_by_hand: bool = await connection.fetchval(
        """
        SELECT EXISTS (SELECT
                         FROM relays r
                         JOIN transaction_requests q ON q.transaction_id = r.transaction_id
                        WHERE r.id = $1 AND q.action = 'cancel' AND q.outcome = 'done')
        """,
        relay,
    )
    return is_by_hand


def _request(row: asyncpg.Record) -> TransactionRequest:
    return TransactionRequest(
        id=row["id"],
        transaction_id=row["transaction_id"],
        action=Action(row["action"]),
        requested_at=row["requested_at"],
        expires_at=row["expires_at"],
        handled_at=row["handled_at"],
        outcome=None if row["outcome"] is None else RequestOutcome(row["outcome"]),
        attempt=None if row["attempt"] is None else Hash32(row["attempt"]),
    )

"""Top-ups: transactions of the treasury that fill the operator's other wallets.

The statement that stores a top-up enforces its bounds: an active wallet, one top-up at a time, and
the day's total. A day is a UTC day of the database's clock. Units: wei.
"""

from decimal import Decimal

import asyncpg
import msgspec

from ltzd.errors import LaneLost
from ltzd.store.database import Connection
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import Attempt
from ltzd.values import Address


class TopUpTarget(msgspec.Struct, frozen=True):
    """A wallet that may get a top-up; `given_out` is its lane's next nonce.

    `has_displaced`: something else has signed with its key, and no person has accounted for that
    (`ltzd lane adopt`).
    """

    wallet: Address
    kind: str
    given_out: int
    has_open: bool
    has_displaced: bool


class TopUp(msgspec.Struct, frozen=True):
    nonce: int
    to: Address
    value_wei: int
    gas_limit: int


async def targets(connection: Connection, chain_id: int) -> list[TopUpTarget]:
    """The active wallets, except treasuries, that have a lane and are not paused by a person."""
    rows = await connection.fetch(
        """
        SELECT w.wallet, w.kind, l.next_nonce,
               EXISTS (SELECT FROM transactions t
                        WHERE t.chain_id = w.chain_id AND t.to_address = w.wallet
                          AND t.kind = 'top_up' AND t.state IN ('signed', 'published', 'mined')),
               l.foreign_use IS NOT NULL
               OR EXISTS (SELECT FROM transactions t
                           WHERE t.chain_id = w.chain_id AND t.wallet = w.wallet
                             AND t.state = 'displaced' AND t.nonce >= l.resumed_nonce)
          FROM operator_wallets w
          JOIN lanes l ON l.chain_id = w.chain_id AND l.wallet = w.wallet
         WHERE w.chain_id = $1 AND w.kind IN ('mint', 'relay')
           AND w.state = 'active' AND w.paused_at IS NULL
         ORDER BY w.wallet
        """,
        chain_id,
    )
    return [TopUpTarget(Address(row[0]), *row[1:]) for row in rows]


async def spent_today(connection: Connection, chain_id: int, treasury: Address) -> int:
    """The sum of the treasury's top-ups that were signed today, whatever became of them."""
    total: Decimal = await connection.fetchval(
        """
        SELECT coalesce(sum(value_wei), 0)
          FROM transactions
         WHERE chain_id = $1 AND wallet = $2 AND kind = 'top_up'
           AND created_at >= date_trunc('day', now(), 'UTC')
        """,
        chain_id,
        treasury,
    )
    return int(total)


async def store_signed(
    connection: Connection, lane: Lane, top_up: TopUp, attempt: Attempt, max_wei_per_day: int
) -> int | None:
    """Insert a top-up and its attempt and take the nonce: all or nothing.

    Returns the intent's id, or None if the wallet may have no top-up by now or the day's bound
    would be passed: the bytes must not leave this process then. Raises LaneLost if nonce or epoch
    is not as the lane expects.
    """
    try:
        id_: int | None = await connection.fetchval(
            """
            WITH lane AS (
              UPDATE lanes
                 SET next_nonce = next_nonce + 1
               WHERE chain_id = $1 AND wallet = $2 AND epoch = $3 AND next_nonce = $4
                 AND EXISTS (SELECT FROM operator_wallets
                              WHERE chain_id = $1 AND wallet = $5 AND kind IN ('mint', 'relay')
                                AND state = 'active' AND paused_at IS NULL
                                FOR SHARE)
                 AND NOT EXISTS (SELECT FROM transactions
                                  WHERE chain_id = $1 AND to_address = $5 AND kind = 'top_up'
                                    AND state IN ('signed', 'published', 'mined'))
                 AND $6 + (SELECT coalesce(sum(value_wei), 0)
                             FROM transactions
                            WHERE chain_id = $1 AND wallet = $2 AND kind = 'top_up'
                              AND created_at >= date_trunc('day', now(), 'UTC')) <= $7
           RETURNING 1
            ), intent AS (
              INSERT INTO transactions
                     (chain_id, wallet, nonce, kind, to_address, data, value_wei, gas_limit, state)
              SELECT $1, $2, $4, 'top_up', $5, '', $6, $8, 'signed' FROM lane
              RETURNING id
            ), attempt AS (
              INSERT INTO attempts
                     (hash, transaction_id, raw, max_fee_per_gas, max_priority_fee_per_gas)
              SELECT $9, id, $10, $11, $12 FROM intent
            )
            SELECT id FROM intent
            """,
            lane.chain_id,
            lane.wallet,
            lane.epoch,
            top_up.nonce,
            top_up.to,
            Decimal(top_up.value_wei),
            Decimal(max_wei_per_day),
            top_up.gas_limit,
            attempt.hash,
            attempt.raw,
            attempt.fees.max_fee_per_gas,
            attempt.fees.max_priority_fee_per_gas,
        )
    except asyncpg.UniqueViolationError as error:
        raise LaneLost("The wallet has another top-up") from error
    if id_ is not None:
        return id_
    is_ours = await connection.fetchval(
        """
        SELECT EXISTS (SELECT FROM lanes
                        WHERE chain_id = $1 AND wallet = $2 AND epoch = $3 AND next_nonce = $4)
        """,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        top_up.nonce,
    )
    if not is_ours:
        raise LaneLost("Another process serves the treasury")
    return None

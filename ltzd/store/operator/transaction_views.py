"""Transactions as a person looks at them: `ltzd tx list` and `ltzd tx show`.

Rarely read, so the joins are not optimised. No e-mail address is among the facts.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec
from msgspec.structs import replace

from ltzd.store.database import Connection
from ltzd.store.operator import requests
from ltzd.store.operator.requests import TransactionRequest
from ltzd.values import Address, Hash32

UNMINED = ("signed", "published")
"""The states of a transaction that no block holds."""
OPEN = (*UNMINED, "mined")
"""The states of a transaction whose outcome is not final."""
STUCK_SECONDS = 60.0
"""A transaction that has been unmined for this time is shown as stuck."""
_REWARDS_SHOWN = 20


class TransactionSummary(msgspec.Struct, frozen=True):
    """A transaction, its work and its newest attempt; fees in wei per gas.

    The call mints `ltz` for `rewards`, or is the relay `function` of `user`. `ahead` counts the
    wallet's unmined transactions with lower nonces, which must be mined first; `oldest` is the
    first of them. `value_wei` is the native value that it moves. `is_legacy`: its two fees are its
    one gas price.
    """

    id: int
    chain_id: int
    kind: str
    wallet: Address
    nonce: int
    state: str
    to: Address
    gas_limit: int
    data_bytes: int
    value_wei: int
    succeeded: bool | None
    is_cancelled: bool
    block_number: int | None
    block_hash: Hash32 | None
    gas_used: int | None
    created_at: datetime
    published_at: datetime | None
    mined_at: datetime | None
    settled_at: datetime | None
    age_seconds: float
    attempts: int
    newest_hash: Hash32
    max_fee_per_gas: int
    max_priority_fee_per_gas: int
    is_legacy: bool
    has_self_transfer: bool
    rewards: int
    ltz: int
    relay: int | None
    function: str | None
    user: Address | None
    ahead: int
    oldest: int | None
    oldest_nonce: int | None
    has_request: bool

    @property
    def is_unmined(self) -> bool:
        return self.state in UNMINED

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def is_stuck(self) -> bool:
        return self.is_unmined and self.age_seconds >= STUCK_SECONDS


class AttemptView(msgspec.Struct, frozen=True):
    """Fees in wei per gas."""

    hash: Hash32
    max_fee_per_gas: int
    max_priority_fee_per_gas: int
    created_at: datetime
    published_at: datetime | None
    is_self_transfer: bool
    """Nodes refuse the call with this nonce."""
    is_legacy: bool
    """A transaction of type 0, whose two fees are its one gas price."""
    is_mined: bool


class RewardView(msgspec.Struct, frozen=True):
    """`id` is the event's for a reward of an event."""

    id: UUID
    brand_id: Address
    wallet: Address
    ltz: int


class TransactionView(msgspec.Struct, frozen=True):
    """All of a transaction; `rewards` are the first twenty."""

    summary: TransactionSummary
    attempts: tuple[AttemptView, ...]
    requests: tuple[TransactionRequest, ...]
    rewards: tuple[RewardView, ...]


_SUMMARY = """
    SELECT t.id, t.chain_id, t.kind, t.wallet, t.nonce, t.state, t.to_address, t.gas_limit,
           octet_length(t.data) AS data_bytes, t.value_wei::text AS value_wei, t.succeeded,
           t.is_cancelled, t.block_number, t.block_hash, t.gas_used, t.created_at, t.published_at,
           t.mined_at, t.settled_at,
           greatest(extract(epoch FROM now() - t.created_at), 0)::float8 AS age_seconds,
           a.count AS attempts, a.newest_hash, a.max_fee_per_gas, a.max_priority_fee_per_gas,
           a.is_legacy, a.has_self_transfer,
           r.count AS rewards, r.ltz, relay.id AS relay, relay.function, relay.user_address,
           before.count AS ahead, before.oldest, before.oldest_nonce,
           EXISTS (SELECT FROM transaction_requests q
                    WHERE q.transaction_id = t.id AND q.handled_at IS NULL) AS has_request
      FROM transactions t
     CROSS JOIN LATERAL (
           SELECT count(*),
                  (array_agg(hash ORDER BY is_cancellation DESC, max_fee_per_gas DESC))[1]
                    AS newest_hash,
                  max(max_fee_per_gas) AS max_fee_per_gas,
                  max(max_priority_fee_per_gas) AS max_priority_fee_per_gas,
                  bool_or(octet_length(raw) > 0 AND get_byte(raw, 0) >= 192) AS is_legacy,
                  bool_or(is_cancellation) AS has_self_transfer
             FROM attempts
            WHERE transaction_id = t.id) a
     CROSS JOIN LATERAL (
           SELECT count(*), coalesce(sum(rewards.ltz), 0)::bigint AS ltz
             FROM rewards
            WHERE transaction_id = t.id) r
     CROSS JOIN LATERAL (
           SELECT count(*),
                  (array_agg(older.id ORDER BY older.nonce))[1] AS oldest,
                  min(older.nonce) AS oldest_nonce
             FROM transactions older
            WHERE older.chain_id = t.chain_id AND older.wallet = t.wallet
              AND older.nonce < t.nonce AND older.state IN ('signed', 'published')
              AND t.state IN ('signed', 'published')) before
      LEFT JOIN relays relay ON relay.transaction_id = t.id
"""


async def list_transactions(
    connection: Connection,
    *,
    wallet: Address | None = None,
    states: Sequence[str] = OPEN,
    is_stuck: bool = False,
    limit: int = 50,
) -> list[TransactionSummary]:
    """Transactions in these states: unmined ones first, oldest first; then mined and settled ones,
    newest first. With `is_stuck` only those that no block has held for `STUCK_SECONDS`.
    """
    chosen = await connection.fetchval(
        """
        WITH open AS MATERIALIZED (
          -- No limit, with which the planner may walk all transactions by their ids.
          SELECT id, state, created_at
            FROM transactions
           WHERE state IN ('signed', 'published', 'mined') AND state = ANY($2::text[])
             AND ($1::bytea IS NULL OR wallet = $1)
        ), unmined AS (
          SELECT id
            FROM open
           WHERE state <> 'mined'
             AND (NOT $3::boolean OR created_at <= now() - make_interval(secs => $4))
           ORDER BY id
           LIMIT $5
        ), mined AS (
          SELECT id
            FROM open
           WHERE state = 'mined' AND NOT $3::boolean
           ORDER BY id DESC
           LIMIT $5
        ), unsuccessful AS (
          SELECT id
            FROM transactions
           WHERE state IN ('reverted', 'displaced', 'cancelled', 'voided')
             AND state = ANY($2::text[])
             AND ($1::bytea IS NULL OR wallet = $1)
             AND NOT $3::boolean
           ORDER BY id DESC
           LIMIT $5
        ), confirmed AS (
          -- Nearly all transactions: each lane's newest are found by its nonces. NOT IN, because a
          -- planner without statistics takes "=" for rare, and would read and sort all of a lane.
          SELECT newest.id
            FROM lanes
           CROSS JOIN LATERAL (
                 SELECT id
                   FROM transactions
                  WHERE chain_id = lanes.chain_id AND wallet = lanes.wallet
                    AND state NOT IN ('signed', 'published', 'mined', 'reverted', 'displaced',
                                      'cancelled', 'voided')
                  ORDER BY nonce DESC
                  LIMIT $5) AS newest
           WHERE 'confirmed' = ANY($2::text[])
             AND ($1::bytea IS NULL OR lanes.wallet = $1)
             AND NOT $3::boolean
           ORDER BY newest.id DESC
           LIMIT $5
        )
        SELECT ARRAY (SELECT id FROM unmined ORDER BY id)
            || ARRAY (SELECT id FROM mined ORDER BY id DESC)
            || ARRAY (SELECT id FROM unsuccessful
                       UNION ALL
                      SELECT id FROM confirmed
                       ORDER BY id DESC)
        """,
        wallet,
        list(states),
        is_stuck,
        STUCK_SECONDS,
        limit,
    )
    rows = await connection.fetch(
        f"{_SUMMARY} WHERE t.id = ANY($1::bigint[]) ORDER BY array_position($1::bigint[], t.id)",
        chosen[:limit],
    )
    return list(map(_summary, rows))


async def find_transaction(
    connection: Connection, transaction: int | Hash32
) -> TransactionView | None:
    """The transaction with this id, or with an attempt of this hash, as of one moment."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        if isinstance(transaction, int):
            id_ = transaction
        else:
            id_ = await connection.fetchval(
                "SELECT transaction_id FROM attempts WHERE hash = $1", transaction
            )
        row = await connection.fetchrow(f"{_SUMMARY} WHERE t.id = $1", id_)
        if row is None:
            return None
        return TransactionView(
            _summary(row),
            await attempts_of(connection, row["id"]),
            tuple(await requests.of_transaction(connection, row["id"])),
            await _rewards(connection, row["id"]),
        )


async def attempts_of(
    connection: Connection, transaction_id: int | None
) -> tuple[AttemptView, ...]:
    """The attempts of a transaction, oldest first; none for None."""
    rows = await connection.fetch(
        """
        SELECT a.hash, a.max_fee_per_gas, a.max_priority_fee_per_gas, a.created_at, a.published_at,
               a.is_cancellation, octet_length(a.raw) > 0 AND get_byte(a.raw, 0) >= 192,
               coalesce(a.hash = t.mined_attempt, false)
          FROM attempts a
          JOIN transactions t ON t.id = a.transaction_id
         WHERE a.transaction_id = $1
         ORDER BY a.created_at, a.is_cancellation, a.max_fee_per_gas
        """,
        transaction_id,
    )
    return tuple(AttemptView(Hash32(row[0]), *row[1:]) for row in rows)


async def _rewards(connection: Connection, transaction_id: int) -> tuple[RewardView, ...]:
    rows = await connection.fetch(
        """
        SELECT id, brand_id, wallet, ltz FROM rewards
         WHERE transaction_id = $1
         ORDER BY seq
         LIMIT $2
        """,
        transaction_id,
        _REWARDS_SHOWN,
    )
    return tuple(RewardView(row[0], Address(row[1]), Address(row[2]), row[3]) for row in rows)


def _summary(row: asyncpg.Record) -> TransactionSummary:
    facts = dict(row)
    user = facts.pop("user_address")
    summary = TransactionSummary(
        to=facts.pop("to_address"), user=None if user is None else Address(user), **facts
    )
    block_hash = summary.block_hash
    return replace(
        summary,
        wallet=Address(summary.wallet),
        to=Address(summary.to),
        block_hash=None if block_hash is None else Hash32(block_hash),
        newest_hash=Hash32(summary.newest_hash),
        value_wei=int(summary.value_wei),
    )

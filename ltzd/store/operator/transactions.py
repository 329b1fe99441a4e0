"""Intents and their attempts: signed, published, mined and settled.

Every statement that changes a state names the state it expects; zero rows is a conflict.
"""

from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID

import asyncpg
import msgspec

from ltzd.concurrency.clock import loop_time
from ltzd.errors import LaneLost, Unavailable
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.references import LaneReferences
from ltzd.rules.operator.sendable import TRANSACTION_GAS
from ltzd.rules.operator.transactions import (
    GasCost,
    Inclusion,
    State,
    Transaction,
)
from ltzd.store.database import Connection
from ltzd.store.operator.lanes import Lane
from ltzd.store.wakeups import origin
from ltzd.values import Address, Hash32


class Intent(msgspec.Struct, frozen=True):
    """A mint that a lane is about to sign.

    `rewards` and `seqs` go together. The lane has `references` before, and `references_after` once
    the new ones among `seqs` are given out.
    """

    nonce: int
    to: Address
    data: bytes
    gas_limit: int
    ltz: int
    rewards: Sequence[UUID]
    seqs: Sequence[int]
    references: LaneReferences
    references_after: LaneReferences


class Attempt(msgspec.Struct, frozen=True):
    """Signed bytes of an intent: its call, or a self-transfer that takes its nonce."""

    hash: Hash32
    raw: bytes
    fees: Fees
    is_cancellation: bool = False


class OpenTransaction(msgspec.Struct, frozen=True):
    """A transaction whose outcome is not final.

    `hashes` are its attempts, newest first; `raw` and `fees` are those of the newest attempt, which
    pays the most. `gas_limit` is the call's. The newest attempt of an abandoned transaction is a
    self-transfer: `cancellations` are the hashes of its self-transfers, and `call_wei` is the most
    that the call may still cost. `ltz` is the amount it mints while in flight; `rewards` is set
    only in the term that signed it. `value_wei` is what a top-up transfers. `created_at` is in
    seconds of `loop_time`: this machine's clock and the database's may differ.
    """

    id: int
    nonce: int
    gas_limit: int
    fees: Fees
    tx: Transaction
    hashes: tuple[Hash32, ...]
    raw: bytes
    created_at: float
    ltz: int = 0
    rewards: tuple[UUID, ...] = ()
    cancellations: tuple[Hash32, ...] = ()
    call_wei: int = 0
    value_wei: int = 0

    @property
    def age_seconds(self) -> float:
        return loop_time() - self.created_at

    @property
    def max_cost_wei(self) -> int:
        """The most that it can cost, whichever attempt is mined."""
        if self.tx.is_abandoned:
            return max(TRANSACTION_GAS * self.fees.max_fee_per_gas, self.call_wei)
        return self.gas_limit * self.fees.max_fee_per_gas + self.value_wei


def newly_signed(
    id_: int,
    nonce: int,
    gas_limit: int,
    attempt: Attempt,
    *,
    ltz: int = 0,
    rewards: Sequence[UUID] = (),
    value_wei: int = 0,
) -> OpenTransaction:
    """The transaction whose intent and first attempt have just been stored."""
    return OpenTransaction(
        id=id_,
        nonce=nonce,
        gas_limit=gas_limit,
        fees=attempt.fees,
        tx=Transaction(State.SIGNED),
        hashes=(attempt.hash,),
        raw=attempt.raw,
        created_at=loop_time(),
        ltz=ltz,
        rewards=tuple(rewards),
        value_wei=value_wei,
    )


class RewardsTaken(Unavailable):
    """Another lane has taken some of the rewards; the lane's own term goes on."""


async def store_signed(connection: Connection, lane: Lane, intent: Intent, attempt: Attempt) -> int:
    """Insert intent and attempt, take nonce and references, and assign the rewards: all or nothing.

    The rewards must be queued and claimed by no other lane; their claims end. Returns the intent's
    id. Raises LaneLost if nonce, references or epoch are not as the lane expects, which means that
    another process serves the lane. Raises RewardsTaken if only the rewards are not.
    """
    # num_nulls, because with IS NULL the planner could walk the queue's partial indexes from end to
    # end instead of finding the rows by their ids.
    before, after = intent.references, intent.references_after
    row = await connection.fetchrow(
        """
        WITH due AS (
          SELECT id
            FROM rewards
           WHERE id = ANY($11::uuid[])
             AND num_nulls(transaction_id, mint_block_hash, failed_at) = 3
             AND (claimed_by IS NULL OR claimed_by = $20)
             FOR UPDATE
        ), taken AS MATERIALIZED (
          SELECT count(*) < cardinality($11::uuid[]) AS is_any FROM due
        ), holder AS MATERIALIZED (
          SELECT 1
            FROM lanes
           WHERE chain_id = $1 AND wallet = $2 AND epoch = $13 AND next_nonce = $3
             AND coalesce(next_seq, 0) = $14 AND coalesce(end_seq, 0) = $15
             AND following_seq IS NOT DISTINCT FROM $16
             FOR UPDATE
        ), lane AS (
          UPDATE lanes
             SET next_nonce = next_nonce + 1,
                 next_seq = $17,
                 end_seq = $18,
                 following_seq = $19
            FROM holder, taken
           WHERE chain_id = $1 AND wallet = $2 AND NOT taken.is_any
       RETURNING 1
        ), intent AS (
          INSERT INTO transactions
                 (chain_id, wallet, nonce, kind, to_address, data, gas_limit, state)
          SELECT $1, $2, $3, 'mint', $4, $5, $6, 'signed' FROM lane
          RETURNING id
        ), attempt AS (
          INSERT INTO attempts
                 (hash, transaction_id, raw, max_fee_per_gas, max_priority_fee_per_gas)
          SELECT $7, id, $8, $9, $10 FROM intent
        ), tied AS (
          UPDATE rewards
             SET transaction_id = intent.id, seq = chosen.seq, claimed_by = NULL
            FROM intent, unnest($11::uuid[], $12::bigint[]) AS chosen (id, seq)
           WHERE rewards.id = chosen.id
        )
        SELECT intent.id, EXISTS (SELECT FROM holder) AS holds
          FROM taken
          LEFT JOIN intent ON true
        """,
        lane.chain_id,
        lane.wallet,
        intent.nonce,
        intent.to,
        intent.data,
        intent.gas_limit,
        attempt.hash,
        attempt.raw,
        attempt.fees.max_fee_per_gas,
        attempt.fees.max_priority_fee_per_gas,
        intent.rewards,
        intent.seqs,
        lane.epoch,
        before.next_seq,
        before.end_seq,
        before.following_seq,
        after.next_seq,
        after.end_seq,
        after.following_seq,
        lane.claim_token,
    )
    if not row["holds"]:
        raise LaneLost("Another process serves this lane")
    if row["id"] is None:
        raise RewardsTaken("Another lane has taken a reward of this mint")
    id_: int = row["id"]
    return id_


async def state_of(connection: Connection, intent: int) -> State:
    state = await connection.fetchval("SELECT state FROM transactions WHERE id = $1", intent)
    return State(state)


async def read_call(connection: Connection, intent: int) -> tuple[Address, bytes]:
    """An intent's contract and data, for another attempt."""
    row = await connection.fetchrow(
        "SELECT to_address, data FROM transactions WHERE id = $1", intent
    )
    return Address(row["to_address"]), row["data"]


async def store_attempt(connection: Connection, lane: Lane, intent: int, attempt: Attempt) -> None:
    """Insert another attempt of an intent that has no receipt.

    Raises LaneLost if the intent has a receipt by now, or the lane's term is over.
    """
    done = await connection.fetchval(
        """
        INSERT INTO attempts
               (hash, transaction_id, raw, max_fee_per_gas, max_priority_fee_per_gas,
                is_cancellation)
        SELECT $2, t.id, $3, $4, $5, $9
          FROM transactions t
         WHERE t.id = $1 AND t.state IN ('signed', 'published')
           AND EXISTS (SELECT FROM lanes
                        WHERE chain_id = $6 AND wallet = $7 AND epoch = $8
                          FOR SHARE)
           FOR SHARE OF t
     RETURNING true
        """,
        intent,
        attempt.hash,
        attempt.raw,
        attempt.fees.max_fee_per_gas,
        attempt.fees.max_priority_fee_per_gas,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        attempt.is_cancellation,
    )
    if not done:
        raise LaneLost(
            "The row of a transaction has changed since it was read, or the lane's term is over"
        )


async def mark_published(connection: Connection, attempts: Sequence[Hash32]) -> None:
    """Record that a node holds these attempts' bytes. Safe to repeat; a later state stays.

    Names no epoch: the record stays true, whoever holds the lane by now. Call it outside a database
    transaction: its commit waits for no disk, since a crash that loses it costs a second
    publication of the same bytes.
    """
    await connection.execute(
        """
        WITH attempt AS (
          UPDATE attempts
             SET published_at = coalesce(published_at, now())
           WHERE hash = ANY($1::bytea[])
       RETURNING transaction_id
        ), intent AS (
          UPDATE transactions
             SET state = 'published', published_at = coalesce(published_at, now())
            FROM attempt
           WHERE transactions.id = attempt.transaction_id AND state = 'signed'
        )
        SELECT pg_notify('ltzd_published', $2), set_config('synchronous_commit', 'off', true)
        """,
        attempts,
        origin(),
    )


async def save(
    connection: Connection, lane: Lane, transitions: Sequence[tuple[Transaction, OpenTransaction]]
) -> None:
    """Write the transitions that `advance` decided, each as the transaction before and after.

    Raises LaneLost if a row or the lane's term has changed. A row may still be `signed` although
    the transaction was published: `mark_published` runs later.
    """
    inclusions = [after.tx.inclusion for _, after in transitions]
    gas_costs = [inclusion.gas_cost if inclusion else None for inclusion in inclusions]
    done = await connection.fetch(
        """
        UPDATE transactions t
           SET state = new.state,
               succeeded = new.succeeded,
               block_number = new.block_number,
               block_hash = new.block_hash,
               mined_attempt = new.attempt,
               gas_used = new.gas_used,
               effective_gas_price = new.gas_price,
               l1_fee_wei = new.l1_fee_wei,
               is_cancelled = new.is_cancelled,
               mined_at = CASE WHEN new.state = 'mined' THEN now()
                               WHEN new.block_hash IS NULL THEN NULL ELSE mined_at END,
               settled_at = CASE WHEN new.state IN ('confirmed', 'reverted', 'displaced',
                                                    'cancelled', 'voided')
                                 THEN now() END
          FROM unnest($4::bigint[], $5::boolean[], $6::text[], $7::boolean[], $8::bigint[],
                      $9::bytea[], $10::bytea[], $11::bigint[], $12::bigint[], $13::numeric[],
                      $14::boolean[])
               AS new (id, was_mined, state, succeeded, block_number, block_hash,
                       attempt, gas_used, gas_price, l1_fee_wei, is_cancelled)
         WHERE t.id = new.id
           AND CASE WHEN new.was_mined THEN t.state = 'mined'
                    ELSE t.state IN ('signed', 'published') END
           AND EXISTS (SELECT FROM lanes
                        WHERE chain_id = $1 AND wallet = $2 AND epoch = $3
                          FOR SHARE)
     RETURNING t.id
        """,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        [after.id for _, after in transitions],
        [before.state is State.MINED for before, _ in transitions],
        [after.tx.state.value for _, after in transitions],
        [inclusion.succeeded if inclusion else None for inclusion in inclusions],
        [inclusion.block_number if inclusion else None for inclusion in inclusions],
        [inclusion.block_hash if inclusion else None for inclusion in inclusions],
        [gas_cost.transaction_hash if gas_cost else None for gas_cost in gas_costs],
        [gas_cost.gas_used if gas_cost else None for gas_cost in gas_costs],
        [gas_cost.effective_gas_price if gas_cost else None for gas_cost in gas_costs],
        [Decimal(gas_cost.l1_fee_wei if gas_cost else 0) for gas_cost in gas_costs],
        [inclusion is not None and inclusion.is_cancellation for inclusion in inclusions],
    )
    if len(done) != len(transitions):
        raise LaneLost(
            "The row of a transaction has changed since it was read, or the lane's term is over"
        )
    unmined = [before for before, after in transitions if _is_unmined(before, after.tx)]
    if unmined:
        # Callers know the hash of what was mined, whether or not its publication was recorded.
        await connection.execute(
            """
            UPDATE attempts SET published_at = coalesce(published_at, now())
             WHERE hash = ANY($1::bytea[])
            """,
            [
                before.inclusion.gas_cost.transaction_hash
                for before in unmined
                if before.inclusion is not None and before.inclusion.gas_cost is not None
            ],
        )


def _is_unmined(before: Transaction, after: Transaction) -> bool:
    """Whether a reorg has dropped the transaction's block."""
    return before.state is State.MINED and after.state in {State.SIGNED, State.PUBLISHED}


async def in_flight(connection: Connection, lane: Lane) -> list[OpenTransaction]:
    """The lane's transactions without a receipt, in the order of nonces."""
    rows = await connection.fetch(
        """
        SELECT *, greatest(extract(epoch FROM now() - created_at), 0)::float8 AS age_seconds,
               (SELECT coalesce(sum(r.ltz), 0)::bigint
                  FROM rewards r
                 WHERE r.transaction_id = t.id) AS ltz
          FROM open_transactions t
         WHERE chain_id = $1 AND wallet = $2 AND state IN ('signed', 'published')
         ORDER BY nonce
        """,
        lane.chain_id,
        lane.wallet,
    )
    return list(map(open_transaction_of, rows))


async def count_open(connection: Connection, chain_id: int, wallet: Address) -> int:
    """How many transactions of a wallet are not final."""
    count: int = await connection.fetchval(
        """
        SELECT count(*) FROM transactions
         WHERE chain_id = $1 AND wallet = $2 AND state IN ('signed', 'published', 'mined')
        """,
        chain_id,
        wallet,
    )
    return count


async def has_voided(connection: Connection, chain_id: int, wallet: Address) -> bool:
    """Whether the rewards of a wallet's transaction were queued again with its nonce unused.

    Such a wallet must sign no more: its nonces may have a hole.
    """
    has: bool = await connection.fetchval(
        """
        SELECT EXISTS (SELECT FROM transactions
                        WHERE chain_id = $1 AND wallet = $2 AND state = 'voided')
        """,
        chain_id,
        wallet,
    )
    return has


async def has_reverted(connection: Connection, lane: Lane) -> bool:
    """Whether a transaction of this lane is mined, reverted, and not final yet."""
    is_reverted: bool = await connection.fetchval(
        """
        SELECT EXISTS (SELECT FROM transactions
                        WHERE chain_id = $1 AND wallet = $2 AND state = 'mined'
                          AND NOT succeeded AND NOT is_cancelled)
        """,
        lane.chain_id,
        lane.wallet,
    )
    return is_reverted


async def has_run_out_of_gas(connection: Connection, lane: Lane) -> bool:
    """Whether one of the lane's latest mints used up its gas limit and reverted."""
    has_run_out: bool = await connection.fetchval(
        """
        SELECT coalesce(bool_or(NOT succeeded AND NOT is_cancelled
                                AND 64 * gas_used >= 63 * gas_limit), false)
          FROM (SELECT *
                  FROM transactions
                 WHERE chain_id = $1 AND wallet = $2
                 ORDER BY nonce DESC
                 LIMIT 256) AS latest
        """,
        lane.chain_id,
        lane.wallet,
    )
    return has_run_out


async def indexed_inclusions(connection: Connection, lane: Lane) -> dict[int, Inclusion]:
    """Inclusions of transactions in flight that indexed mints prove, by nonce.

    A mint's logs exist only if its transaction succeeded, so no receipt is needed.
    """
    rows = await connection.fetch(
        """
        SELECT t.nonce, seen.mint_block_number, seen.mint_block_hash
          FROM transactions t
         CROSS JOIN LATERAL (
               SELECT r.mint_block_number, r.mint_block_hash
                 FROM rewards r
                 JOIN attempts a ON a.hash = r.mint_transaction_hash
                WHERE r.transaction_id = t.id AND a.transaction_id = t.id
                LIMIT 1) AS seen
         WHERE t.chain_id = $1 AND t.wallet = $2 AND t.state IN ('signed', 'published')
        """,
        lane.chain_id,
        lane.wallet,
    )
    return {row[0]: Inclusion(row[1], Hash32(row[2]), succeeded=True) for row in rows}


async def still_final(connection: Connection, lane: Lane, ids: Sequence[int]) -> set[int]:
    """The mined transactions among these whose block is past finality.

    They remain so until the caller's database transaction ends: a reorg below finality (dev chains)
    waits for it, and finds them with their new states.
    """
    final_number = await connection.fetchval(
        "SELECT final_number FROM chains WHERE chain_id = $1 FOR SHARE", lane.chain_id
    )
    rows = await connection.fetch(
        """
        SELECT id
          FROM transactions t
         WHERE id = ANY($1::bigint[]) AND block_number <= $2
           AND NOT EXISTS (
             SELECT FROM blocks WHERE number = t.block_number AND hash <> t.block_hash)
        """,
        ids,
        final_number,
    )
    return {row["id"] for row in rows}


def open_transaction_of(row: asyncpg.Record) -> OpenTransaction:
    cancellations = tuple(map(Hash32, row["cancellations"]))
    is_abandoned = bool(cancellations)
    value_wei = int(row["value_wei"])
    call_wei = row["gas_limit"] * row["call_max_fee_per_gas"] + value_wei if is_abandoned else 0
    return OpenTransaction(
        id=row["id"],
        nonce=row["nonce"],
        gas_limit=row["gas_limit"],
        fees=Fees(row["max_fee_per_gas"], row["max_priority_fee_per_gas"]),
        tx=Transaction(State(row["state"]), inclusion_of(row), is_abandoned),
        hashes=tuple(map(Hash32, row["hashes"])),
        raw=row["raw"],
        created_at=loop_time() - row["age_seconds"],
        ltz=row.get("ltz", 0),
        cancellations=cancellations,
        call_wei=call_wei,
        value_wei=value_wei,
    )


def inclusion_of(row: asyncpg.Record) -> Inclusion | None:
    if row["block_hash"] is None:
        return None
    return Inclusion(
        row["block_number"],
        Hash32(row["block_hash"]),
        row["succeeded"],
        _gas_cost(row),
        row["is_cancelled"],
    )


def _gas_cost(row: asyncpg.Record) -> GasCost | None:
    """Return None for a mint that was indexed before its receipt was read."""
    attempt = row["mined_attempt"]
    if attempt is None:
        return None
    return GasCost(
        Hash32(attempt), row["gas_used"], row["effective_gas_price"], int(row["l1_fee_wei"])
    )
